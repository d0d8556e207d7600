"""Sessions join counters and families: a join is acknowledged again, admitted, or rejected once on a connection."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from countless.errors import InvalidParameter, PlanError
from countless.server.connection import Connection
from countless.server.sessions.kind import Outbox
from countless.server.sessions.members import Members, id_in
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import Amounts, TombstoneShares
from countless.server.sessions.tracked import Tracked
from countless.server.storage.commit import CommitPipeline
from countless.wire.frames import DownItem
from countless.wire.keys import Key

T = TypeVar("T", bound=Tracked)


class Answers(NamedTuple):
    """The items of a kind about a name in a frame: that its Leave is acknowledged, and why its Join was rejected."""

    left: Callable[[str], DownItem]
    rejected: Callable[[str, str], DownItem]
    limit: int  # of names that a site may join
    setting: str  # or what people call that limit


class Joining:
    def __init__(
        self,
        members: Members,
        pipeline: CommitPipeline,
        tombstones: TombstoneShares,
        joined: Amounts,
        max_ignored: int,
        on_rejected: Callable[[], None],
    ) -> None:
        self._members = members
        self._pipeline = pipeline
        self._tombstones = tombstones
        self._joined = joined
        self._max_ignored = max_ignored
        self._on_rejected = on_rejected

    def join(
        self,
        session: Session,
        connection: Connection,
        key: Key,
        answers: Answers,
        admit: Callable[[], tuple[T, Outbox]],
    ) -> T | None:
        """`admit` says where the key is counted, and what the coordinator returned to the join. It raises
        InvalidParameter or PlanError, and has changed nothing then. None: the session has not joined.
        """
        session.unconfirmed.discard(key)
        is_new = key not in session.members
        if is_new and session.has_left(key):  # the acknowledgement of its Leave was lost
            session.reject(key, self._max_ignored)
            self._pipeline.send(connection, answers.left(str(key)))
            return None
        try:
            if is_new:
                self._require_room(session, key, answers)
            tracked, outbox = admit()
        except (InvalidParameter, PlanError) as error:
            self._on_rejected()
            session.reject(key, self._max_ignored)
            self._pipeline.send(connection, answers.rejected(str(key), str(error)))
            return None
        key = tracked.key if tracked.key == key else key  # one object for all sessions
        session.stop_ignoring(key)
        session.owed.note_progress()
        if self._members.enter(session, key, tracked):
            self._tombstones.add(session.peer, session.site_id, [(key.windows if key.is_window else key, None)])
        tracked.mark_site(id_in(session, key, tracked))
        self._members.dispatch(tracked, outbox)
        return tracked

    def _require_room(self, session: Session, key: Key, answers: Answers) -> None:
        if not self._joined.has_room(session.peer):
            allowed = "one that this process has joined: processes have joined too many"
            limits = "(max_memberships, and max_share of it for one token)"
            raise InvalidParameter(key.kind, key.in_words, f"{allowed} {limits}")
        if key.windows in session.windows_left:  # another window of a name that it has joined
            return
        if session.names(key.kind) >= answers.limit:
            message = f"this site counts as many as it may ({answers.setting})"
            raise InvalidParameter(key.kind, str(key), message=message)
        self._tombstones.require_room(session.peer, key.kind, key.in_words)
