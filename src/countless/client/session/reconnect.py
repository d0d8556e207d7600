"""A session with one shard that survives broken streams: it opens a new one after a pause."""

from collections.abc import Callable

from countless.client.session.protocol import NewIncarnation, SessionRetired, SessionSteps, SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.client.transport.base import ConnectionLost, Received, Transport
from countless.core.random_source import RandomSource
from countless.errors import ProtocolError

FIRST_S, MAX_WHILE_WAITED_FOR_S, MAX_S = 0.05, 0.5, 10 / 3  # before jitter, which makes half as much of it, up to 5 s


class Backoff:
    """Pauses that double, with jitter: not all clients return to a restarted coordinator in the same moment."""

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng
        self._pause = FIRST_S

    def reset(self) -> None:
        self._pause = FIRST_S

    def next(self, waited_for: bool = False) -> float:
        """Seconds to wait now; fewer while the program waits for the connection."""
        pause, self._pause = self._pause, min(2 * self._pause, MAX_S)
        return (min(pause, MAX_WHILE_WAITED_FOR_S) if waited_for else pause) * (0.5 + self._rng.random())


_NEVER = float("inf")

OnStatus = Callable[[str | None], None]  # why there is no connection; None: the coordinator has acknowledged something


class ReconnectingSession:
    """One session, on one stream after another. Belongs to the client's thread."""

    def __init__(
        self,
        session: SiteSession,
        shard: int,
        transport: Transport,
        on_status: OnStatus,
        new_incarnation: NewIncarnation,
        surroundings: ClientSurroundings,
    ) -> None:
        self.next_wakeup = 0.0  # when to call `step`, if nothing arrives before
        self._session = session
        self._shard = shard
        self._transport = transport
        self._on_status = on_status
        self._new_incarnation = new_incarnation
        self._clock = surroundings.clock
        self._backoff = Backoff(surroundings.rng)
        self._steps: SessionSteps | None = None  # of the present stream

    def step(self, received: Received, urgent: bool, waited_for: bool) -> None:
        """Handle what has arrived, or open a stream if it is time.

        `urgent`: the pause between attempts is over. `waited_for`: the program waits, so pauses are short.
        """
        try:
            if self._steps is not None:
                self._continue(self._steps, received)
            elif not self._session.has_work or self._session.done:
                self.next_wakeup = _NEVER
            elif urgent or received or self.next_wakeup == _NEVER or self._clock() >= self.next_wakeup:
                self._open()  # something received without a stream: another coordinator has taken the shard over
        except StopIteration:
            self._end(_NEVER)
        except SessionRetired as retired:
            self._session.renew(retired, self._new_incarnation)
            self._end(0.0)
        except (ConnectionLost, ProtocolError) as error:
            self._on_status(str(error))
            if self._session.connected:
                self._backoff.reset()
            self._end(self._clock() + self._backoff.next(waited_for))

    def _open(self) -> None:
        send = self._transport.open_stream(self._shard)
        self._steps = self._session.run(send, lambda: self._on_status(None))
        self.next_wakeup = self._clock() + next(self._steps)

    def _continue(self, steps: SessionSteps, received: Received) -> None:
        if isinstance(received, ConnectionLost):
            raise received
        self.next_wakeup = self._clock() + steps.send(received)

    def _end(self, next_wakeup: float) -> None:
        self._steps, self.next_wakeup, self._session.connected = None, next_wakeup, False
        self._transport.close_stream(self._shard)
