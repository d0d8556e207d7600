"""The roster: all counters and all lives of sites, kept in step with each other and with the disk.

Here is how counters are made, changed and forgotten, and how a life falls silent and ends. What connections bring is in
`host.py`. Whatever the core returns goes to the post, which saves before it sends.
"""

from collections import Counter as Tally
from collections.abc import Callable

from countless.core.coordinator import Outbox
from countless.core.messages import Snapshot, StartRound
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.server.sessions.counter import Counter
from countless.server.sessions.membership import Membership
from countless.server.sessions.overflow import SeriesCounts, spoken
from countless.server.sessions.session_table import Connection, Session, SessionTable
from countless.server.settings import Settings, require_config
from countless.server.storage.base import Config, StateStore
from countless.server.storage.commit import CommitPipeline
from countless.wire.frames import Rejoin
from countless.wire.names import require_name


class CounterRegistry:
    """All counters, all sites."""

    def __init__(self, store: StateStore, settings: Settings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.counters: dict[str, Counter] = {}
        self.families = SeriesCounts()
        self.sessions = SessionTable()
        self._seats = Membership(settings, self.counters, self.families)
        self._store = store
        self._clock = clock
        self._pipeline = CommitPipeline(store, self.counters)
        self._load()

    def _load(self) -> None:
        now = self._clock()
        for name, (config, saved_state) in self._store.load().items():
            counter = self.counters[name] = Counter(name, config, saved_state)
            self.families.add(name)
            for address, _ in saved_state.known:
                said, home = spoken(name, address)
                session = self.sessions.open(home, now)
                session.memberships[said] = session.site_id if home == address else address
            self._dispatch(counter, counter.recover())
        for session in self.sessions:
            session.left.update(name for name, _ in self._store.tombstones(session.site_id))

    @property
    def overflowed(self) -> Tally[str]:
        """By counter: how many of its labelled series were counted in the overflow series."""
        return self.families.overflowed

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
        self._pipeline.mark_config(name, config)
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
        self._pipeline.mark_config(name, config)
        self._dispatch(counter, counter.recover())
        for session in self.sessions:
            for said in self._seats.names(session, counter) if session.unreachable else ():
                self._dispatch(counter, counter.coordinator.mark_unreachable(session.memberships[said]))
        return counter

    def delete(self, name: str) -> None:
        """Forget a counter. Sites that are connected begin again from nothing."""
        counter = self.counter(name)
        for session in self.sessions:
            for said in self._seats.names(session, counter):
                del session.memberships[said]
                if session.connection is not None:
                    session.connection.ignored_counters.add(said)
                    self._pipeline.send(session.connection, Rejoin(said, keep_count=False))
            session.left.discard(name)
        del self.counters[name]
        self.families.remove(name)
        self._pipeline.mark_deleted(name)
        counter.changed.set()

    def drop_site(self, site: str) -> int:
        """Give up the lives of a site that are not connected; how many there were."""
        sessions = [session for session in self.sessions.of_site(site) if session.connection is None]
        for session in sessions:
            self._retire(session)
        return len(sessions)

    # Silence, and the end of a life

    def on_disconnect(self, session: Session, connection: Connection) -> None:
        """A connection has gone; the life may come back on another."""
        self._pipeline.discard(connection)
        if session.connection is connection:
            session.seen_at = (
                session.last_seen() if session.unreachable else self._clock()
            )  # hanging up is a sign of life too
            session.connection = session.awaiting_since = None
            if not session.memberships:
                self.sessions.remove(session)

    def _mark_unreachable(self, session: Session) -> None:
        session.unreachable = True
        if session.connection is not None:
            session.connection.close(1001, "no sign of life")
            self.on_disconnect(session, session.connection)
        for _, counter, address in self._seats.all(session):
            self._dispatch(counter, counter.coordinator.mark_unreachable(address))

    def _retire(self, session: Session) -> None:
        for name, counter, address in self._seats.all(session):
            known = counter.coordinator.reported_by(address)
            outbox = counter.coordinator.leave(address, Snapshot(name, counter.coordinator.round, known))
            self._record_departure(counter, session, name, known)
            self._dispatch(counter, outbox)
        self.sessions.remove(session)

    def _record_departure(self, counter: Counter, session: Session, name: str, known: int) -> None:
        address = session.memberships.pop(name)
        counter.departed += known
        self._pipeline.mark_departed((counter.name, address), (name, session.site_id), known)

    # To be saved, then sent

    def _dispatch(self, counter: Counter, outbox: Outbox) -> None:
        self._pipeline.mark_counter(counter.name)
        for address, message in outbox:
            name, home = spoken(counter.name, address)
            session = self.sessions.get(home)
            if (
                session is not None
                and session.connection is not None
                and name not in session.connection.ignored_counters
            ):
                counter.traffic.down += 1
                if isinstance(message, StartRound) and session.awaiting_since is None:
                    session.awaiting_since = self._clock()
                self._pipeline.send(
                    session.connection, message if name == counter.name else message._replace(counter=name)
                )
