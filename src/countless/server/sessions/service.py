"""The parts of a site server that each of its kinds is given."""

from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field

from countless.server.sessions.members import Members
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.tracked import Surroundings
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.tuning import Tuning
from countless.wire.keys import Key


class Names:
    """The kind of each name; a counter that has series only is one, too."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}  # by name without labels
        self._count: Tally[str] = Tally()

    def kind_of(self, root: str) -> str | None:
        return self._kinds.get(root)

    def add(self, key: Key) -> None:
        self._kinds[key.root] = key.kind
        self._count[key.root] += 1

    def remove(self, key: Key) -> None:
        self._count[key.root] -= 1
        if not self._count[key.root]:
            del self._count[key.root], self._kinds[key.root]


@dataclass(frozen=True, slots=True)
class Service:
    settings: Settings
    tuning: Tuning
    clock: Callable[[], float]
    around: Surroundings
    sessions: SessionTable
    members: Members
    pipeline: CommitPipeline
    retire_lost: Callable[[Session], None]
    names: Names = field(default_factory=Names)  # of everything that is counted
