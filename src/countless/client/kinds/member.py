"""A kind as sessions see it: a part of each session, and a member for each name that is counted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from countless.core.messages import SiteId
from countless.wire.frames import DownItem, UpItem
from countless.wire.keys import Key

K = TypeVar("K")  # how much of it a coordinator knows


class ItemEffect(Enum):
    """The effect of an item on the session."""

    NONE = "the member has done everything"
    LEFT = "the coordinator has its final count"
    REJECTED = "the coordinator does not count it"
    RESET = "it was deleted, and begins again from zero"
    RESEND = "the coordinator has missed reports, which are queued again"


@dataclass(frozen=True, slots=True)
class Known:
    """The counts of a retired incarnation that the coordinator knew."""

    members: Mapping[Key, Any] = field(default_factory=dict)
    first_not_left: Mapping[Key, int] = field(default_factory=dict)  # by the key of all windows together

    def has_left(self, key: Key) -> bool:
        """It is a window, and everything that was counted in it is known."""
        return key.is_window and key.period < self.first_not_left.get(key.windows, 0)


class SessionHooks:
    """Facts of a kind in a session, and moments at which it may do something. By default it has and does nothing."""

    leased = False  # it needs an answer from the coordinator now and then ...
    may_lease = False  # ... or an answer to what it sends may say so

    @property
    def counted(self) -> bool:
        """There are events."""
        return False

    @property
    def sent(self) -> Mapping[Key, Any]:
        """The most that this incarnation has sent, on any stream."""
        return {}

    @property
    def rejected(self) -> Mapping[str, str]:
        """By name, what the coordinator has rejected on the present stream, with its reasons."""
        return {}

    @property
    def delivered(self) -> bool:
        """Everything has left, and nothing was rejected."""
        return True

    def on_contact(self) -> None:
        """The coordinator has answered after a long time."""

    def leave(self) -> None:
        """The client is closed."""


class SessionPart(SessionHooks, ABC):
    """All that one session has of a kind. Methods that take the lock say so; all others are called with it."""

    @abstractmethod
    def initial_items(self) -> Sequence[UpItem]:
        """The items that begin a new stream. Takes the lock."""

    @abstractmethod
    def drain(self) -> Sequence[UpItem]:
        """Take all that is due."""

    @abstractmethod
    def leave_items(self) -> Sequence[UpItem]:
        """The last items."""

    @property
    @abstractmethod
    def all_left(self) -> bool:
        """Nothing more can leave on this stream."""

    @abstractmethod
    def receive(self, item: DownItem, site_id: SiteId) -> ItemEffect:
        """Items of other kinds are ignored."""

    @abstractmethod
    def renew(self, site_id: SiteId, known: Known) -> None:
        """Continue as a new incarnation, with the events that are not among the known ones."""

    @property
    @abstractmethod
    def next_tick(self) -> float:
        """The time of the next `tick`."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Look after what has ended, or ends soon. Takes the lock."""


class Member(ABC, Generic[K]):
    """A counter or family of this incarnation, as items. A window is one of its own. Everything is called with the lock
    held.
    """

    def __init__(self, key: Key) -> None:
        self.key = key
        self.joined = False  # on the present stream
        self.rejected: str | None = None  # why, if it was on the present stream
        self.sent: K | None = None  # the most that this incarnation has sent, on any stream
        self._changed: Callable[[Key], None] = _ignore

    def bind(self, changed: Callable[[Key], None]) -> None:
        """`changed` is called when something is queued."""
        self._changed = changed

    @abstractmethod
    def queue(self, messages: Sequence[Any]) -> None:
        """Send these soon: the messages of its site in the core."""

    def new_stream(self) -> None:
        self.joined, self.rejected = False, None
        self.drop_queued()

    @property
    @abstractmethod
    def active(self) -> bool:
        """The coordinator knows it, or has to."""

    @property
    @abstractmethod
    def counted(self) -> bool:
        """There are events."""

    @abstractmethod
    def join(self) -> Sequence[UpItem]:
        """The items that make the coordinator know it, on a stream that it has not joined; empty if it need not."""

    @abstractmethod
    def take_queued(self) -> Sequence[UpItem]:
        """Take the items that are due after a join."""

    @abstractmethod
    def drop_queued(self) -> None: ...

    @abstractmethod
    def leave(self) -> Sequence[UpItem]:
        """The last items. Everything was counted."""

    @abstractmethod
    def receive(self, item: DownItem, site_id: SiteId) -> ItemEffect: ...

    @abstractmethod
    def renew(self, site_id: SiteId, known: K | None, complete: bool) -> None:
        """Continue as a new incarnation with the events that are not known. `complete`: all of them are."""


AnyMember = Member[Any]


class LocalObject(Protocol):
    """One name that this process counts, or one window of it. Everything is called with the lock held."""

    @property
    def key(self) -> Key: ...

    @property
    def active(self) -> bool:
        """There is anything to report, or was."""

    def member(self) -> AnyMember:
        """It, as the sessions of one incarnation see it."""

    def after_fork(self) -> None:
        """In a child, which has counted nothing. The thread that was in here belongs to the parent."""

    def close(self) -> None:
        """A later `add` raises, or goes to another window."""

    def forget(self) -> None:
        """It is closed, and everything is delivered."""


def _ignore(key: Key) -> None:
    pass
