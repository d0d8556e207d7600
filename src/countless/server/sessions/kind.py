"""A kind of thing that is counted, or spent, as the sessions of sites see it, which know none."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from countless.core.messages import SiteId
from countless.server.connection import Connection
from countless.server.sessions.session_table import Session
from countless.server.sessions.tracked import Tracked
from countless.server.storage.rows import KeyRows, Tombstone, What
from countless.wire.frames import DownItem
from countless.wire.keys import Key

Outbox = list[tuple[SiteId, Any]]
Handler = Callable[[Session, Connection, Any, float], None]  # the last is the size of the item, in bytes


class Hooks:
    """Moments at which a kind may do something. It does nothing unless it says otherwise."""

    def told(self, tombstones: Iterable[Tombstone]) -> list[DownItem]:
        """To a retired incarnation that has come back: what is known of it, but for its `known_counts`."""
        return []

    def known_counts(self, tombstones: Iterable[Tombstone]) -> list[tuple[str, int]]:
        """By the names in frames; and of all windows together, the first one that it has not left."""
        return [(str(each.key), each.value) for each in tombstones if each.what is What.WATERMARK]

    def has_given_up(self, site_id: SiteId) -> bool:
        """True if an incarnation must not connect again, although it may have no tombstone."""
        return False

    def entered(self, session: Session, key: Key, is_new: bool) -> None:
        """The session has joined, perhaps again."""

    def exited(self, session: Session, key: Key) -> None:
        """The session is not a member any more."""

    def fits(self, session: Session, peer: str) -> bool:
        """True if a peer has room for all that the session has."""
        return True

    def set_peer(self, session: Session, peer: str) -> None:
        """Let all that the session has belong to the peer of its present connection."""

    def end_connection(self, session: Session) -> None:
        """Its connection has ended, or it begins another one."""

    def look_at(self, session: Session) -> None:
        """Every second, for each session."""

    def free(self, session: Session) -> float:
        """The session is unreachable. Returns when to call this again."""
        return inf

    def keeps(self, session: Session) -> bool:
        """True if only an operator may retire the session."""
        return False

    def frame_sent(self, items: Sequence[DownItem], size: int) -> None:
        """A frame of so many bytes has left."""

    def stop(self) -> None:
        """The service ends."""

    def renewed(self) -> None:
        """A session continues as another incarnation."""


class Kind(Hooks, ABC):
    """All that the service has of one kind."""

    name: str  # as in keys
    handlers: Mapping[type, Handler]  # by the type of the item that a site sends

    @abstractmethod
    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> Iterator[tuple[SiteId, Key, Tracked]]:
        """Everything that the store has of this kind. Yields the members, with the keys that their clients use."""

    @abstractmethod
    def recover(self) -> None:
        """Once after `load`: ask the members for what the saved state does not say."""

    @abstractmethod
    def tick(self) -> Iterator[None]:
        """Close, drop and free what has ended. Yields between slices, for other work of the loop."""

    @abstractmethod
    def down_item(self, session: Session, key: Key, message: Any) -> DownItem | None:
        """A message of a coordinator as the session receives it; None: it would not understand it now."""

    @abstractmethod
    def asks(self, message: Any) -> bool:
        """True if a site must answer it in time."""

    @abstractmethod
    def saves(self, message: Any) -> bool:
        """True if it changes what is saved of its receiver."""

    @abstractmethod
    def lose(self, session: Session, key: Key, site_id: SiteId, lost: bool) -> tuple[Outbox, list[Tombstone]]:
        """A member has ended without leaving. `lost`: it may have counted events that will never be delivered."""
