"""The roster: all counters and all lives of sites, kept in step with each other and with the disk.

Here is how counters are made, changed and forgotten, and how a life falls silent and ends. What connections bring is in
`host.py`. Whatever the core returns goes to the post, which saves before it sends.
"""

from collections.abc import Callable

from countless.core.coordinator import Outbox
from countless.core.messages import Snapshot, StartRound
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.server.sessions.counter import Counter
from countless.server.sessions.membership import Seats
from countless.server.sessions.overflow import Families, spoken
from countless.server.sessions.session_table import Life, Line, Lives
from countless.server.settings import Settings, require_config
from countless.server.storage.base import Config, StateStore
from countless.server.storage.commit import Post
from countless.wire.frames import Rejoin
from countless.wire.names import require_name


class Roster:
    """All counters, all sites."""

    def __init__(self, store: StateStore, settings: Settings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.counters: dict[str, Counter] = {}
        self.families = Families()
        self.lives = Lives()
        self._seats = Seats(settings, self.counters, self.families)
        self._store = store
        self._clock = clock
        self._post = Post(store, self.counters)
        self._load()

    def _load(self) -> None:
        now = self._clock()
        for name, (config, saved_state) in self._store.load().items():
            counter = self.counters[name] = Counter(name, config, saved_state)
            self.families.add(name)
            for address, _ in saved_state.known:
                said, home = spoken(name, address)
                life = self.lives.enter(home, now)
                life.counters[said] = life.site_id if home == address else address
            self._do(counter, counter.wake())
        for life in self.lives:
            life.left.update(name for name, _ in self._store.tombstones(life.site_id))

    # What operators ask for

    def counter(self, name: str) -> Counter:
        """The counter of this name."""
        try:
            return self.counters[name]
        except KeyError:
            raise UnknownName("counter", name, self.counters) from None

    def create(self, name: str, config: Config) -> Counter:
        """A new counter."""
        try:
            require_name(name, "counter")
        except ProtocolError as error:
            raise InvalidParameter("counter", name, str(error)) from None
        require_config(config)
        if name in self.counters:
            raise InvalidParameter("counter", name, "a name that is not taken")
        self._seats.require_room(name)
        counter = self.counters[name] = Counter(name, config)
        self.families.add(name)
        self._post.configured(name, config)
        return counter

    def configure(self, name: str, config: Config) -> Counter:
        """Other rules for a counter that exists. Its alpha may only grow: what was published cannot be taken back."""
        before = self.counter(name)
        require_config(config)
        if config.alpha < before.config.alpha:
            raise InvalidParameter("alpha", config.alpha, f"at least {before.config.alpha}, which it has had so far")
        if config == before.config:
            return before
        counter = self.counters[name] = before.reconfigured(config)
        self._post.configured(name, config)
        self._do(counter, counter.wake())
        for life in self.lives:
            for said in self._seats.names(life, counter) if life.silent else ():
                self._do(counter, counter.coordinator.mark_unreachable(life.counters[said]))
        return counter

    def delete(self, name: str) -> None:
        """Forget a counter. Sites that are connected begin again from nothing."""
        counter = self.counter(name)
        for life in self.lives:
            for said in self._seats.names(life, counter):
                del life.counters[said]
                if life.line is not None:
                    life.line.void.add(said)
                    self._post.send(life.line, Rejoin(said, keep_count=False))
            life.left.discard(name)
        del self.counters[name]
        self.families.remove(name)
        self._post.deleted(name)
        counter.news.set()

    def forget(self, site: str) -> int:
        """Give up the lives of a site that are not connected; how many there were."""
        lives = [life for life in self.lives.named(site) if life.line is None]
        for life in lives:
            self._bury(life)
        return len(lives)

    # Silence, and the end of a life

    def lost(self, life: Life, line: Line) -> None:
        """A connection has gone; the life may come back on another."""
        self._post.lost(line)
        if life.line is line:
            life.heard = life.last_heard() if life.silent else self._clock()  # hanging up is a sign of life too
            life.line = life.asked = None
            if not life.counters:
                self.lives.remove(life)

    def _silence(self, life: Life) -> None:
        life.silent = True
        if life.line is not None:
            life.line.close(1001, "no sign of life")
            self.lost(life, life.line)
        for _, counter, address in self._seats.all(life):
            self._do(counter, counter.coordinator.mark_unreachable(address))

    def _bury(self, life: Life) -> None:
        for name, counter, address in self._seats.all(life):
            known = counter.coordinator.reported_by(address)
            outbox = counter.coordinator.leave(address, Snapshot(name, counter.coordinator.round, known))
            self._gone(counter, life, name, known)
            self._do(counter, outbox)
        self.lives.remove(life)

    def _gone(self, counter: Counter, life: Life, name: str, known: int) -> None:
        address = life.counters.pop(name)
        counter.departed += known
        self._post.gone((counter.name, address), (name, life.site_id), known)

    # To be saved, then sent

    def _do(self, counter: Counter, outbox: Outbox) -> None:
        self._post.touched(counter.name)
        for address, message in outbox:
            name, home = spoken(counter.name, address)
            life = self.lives.get(home)
            if life is not None and life.line is not None and name not in life.line.void:
                counter.traffic.down += 1
                if isinstance(message, StartRound) and life.asked is None:
                    life.asked = self._clock()
                self._post.send(life.line, message if name == counter.name else message._replace(counter=name))
