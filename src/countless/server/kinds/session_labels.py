"""The labels that sessions have named on their connections, and whether they may name more."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from sys import intern

from countless.core.family.messages import OVERFLOW
from countless.core.family.rule import FamilyRule
from countless.core.family.site import LABEL_CAP
from countless.errors import ProtocolError
from countless.server.connection import Connection
from countless.server.kinds.label_shares import LabelShares, LabelUse, label_bytes
from countless.server.sessions.session_table import Session
from countless.server.storage.commit import CommitPipeline
from countless.wire.families import FamilyLabels, LabelCap
from countless.wire.keys import FAMILY, Key, is_valid_name

log = logging.getLogger("countless")

WARN_INTERVAL_S = 60.0  # between two warnings


@dataclass
class NamedLabels:
    """The labels of one session, on its present connection."""

    by_number: dict[Key, list[str]] = field(default_factory=dict)  # of each family that it has joined
    limited: bool = False  # it was told to count no new labels by name


class SessionLabels:
    def __init__(self, shares: LabelShares, pipeline: CommitPipeline, clock: Callable[[], float]) -> None:
        self._shares = shares
        self._pipeline = pipeline
        self._clock = clock
        self._warn_at = -inf

    def begin(self, session: Session, key: Key) -> None:
        """The session has joined a family: its labels have no numbers yet."""
        self.forget(session, key)
        named = session.own.setdefault(FAMILY, NamedLabels())
        named.by_number[key] = [OVERFLOW]

    def of(self, session: Session, key: Key) -> list[str] | None:
        """By number; None: it has not joined this family on its present connection."""
        named = session.own.get(FAMILY)
        return None if named is None else named.by_number.get(key)

    def add(self, session: Session, connection: Connection, key: Key, item: FamilyLabels, rule: FamilyRule) -> None:
        named = session.own[FAMILY]
        labels = named.by_number[key]
        if len(labels) + len(item.labels) > LABEL_CAP + 1:
            raise ProtocolError(f"family {item.family!r}: a site has at most {LABEL_CAP} labels")
        for label in item.labels:
            if not is_valid_name(label) or not rule.allows(label):
                raise ProtocolError(f"family {item.family!r}: {label[:50]!r} is not a bucket of values")
        size = label_bytes(item.labels)
        self._shares.require_room(session.peer, size)
        labels.extend(map(intern, item.labels))
        self._shares.add(LabelUse(key, session.site_id, numbers=True), session.peer, size)
        if not named.limited and self._shares.is_nearly_full(session.peer):
            named.limited = True
            self._limit(session, connection)

    def _limit(self, session: Session, connection: Connection) -> None:
        """Events of further labels are in the overflow label, where they need no room."""
        self._pipeline.send(connection, LabelCap(0))
        if self._clock() >= self._warn_at:
            self._warn_at = self._clock() + WARN_INTERVAL_S
            log.warning(
                "label memory above 75 %%, new labels counted as overflow: site=%r (max_label_mb, max_share)",
                session.site_id.site,
            )

    def lift_limit(self, session: Session) -> None:
        """If there is room again."""
        named = session.own.get(FAMILY)
        if named is None or not named.limited or session.connection is None:
            return
        if not self._shares.is_nearly_full(session.peer):
            named.limited = False
            self._pipeline.send(session.connection, LabelCap(LABEL_CAP))

    def forget(self, session: Session, key: Key) -> None:
        named = session.own.get(FAMILY)
        if named is not None:
            named.by_number.pop(key, None)
            self._shares.remove(LabelUse(key, session.site_id, numbers=True))

    def end_connection(self, session: Session) -> None:
        named = session.own.pop(FAMILY, NamedLabels())
        for key in named.by_number:
            self._shares.remove(LabelUse(key, session.site_id, numbers=True))
