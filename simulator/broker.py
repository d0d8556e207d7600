"""A broker in memory: subjects, logs that reject appends behind the last one, a bucket of keys, and what goes wrong.

A connection to it keeps the order of messages in each direction. It may be stalled, which delays everything, or cut:
then what is under way is lost, and so is what the broker sends meanwhile, while the other side sends later what it has
published, as the library of NATS does. An append may fail, or its confirmation may be lost. A killed coordinator's
appends that are under way arrive, or not, or in the middle of a take-over, just before the first append of the next
owner; so a record of several parts may end in the middle. Those of a stalled one may arrive there, too.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import APIError, KeyWrongLastSequenceError, NotFoundError

from countless.client.transport.base import ConnectionLost
from countless.client.transport.nats_transport import NatsTransport
from countless.core.random_source import RandomSource
from countless.server.cluster.broker import BUCKET
from countless.wire.nats_protocol import Delivery
from countless.wire.nats_url import Broker, BrokerNode
from simulator.network import DOWN, MAX_NOTICE_S, UP

T = TypeVar("T")
_TICK_S = 1e-6  # between two messages in one direction
_NO_RESPONDERS = 503
_WRONG_LAST_SEQUENCE = 10071
_NO_SPACE = 10047


class Wire:
    """One connection to the broker."""

    def __init__(self, delay: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay = delay
        self._arrival = [0.0, 0.0]  # of the last message in each direction
        self._cuts = 0
        self._held_until = self._cut_until = 0.0
        self.ended = False  # what is under way to the broker still arrives

    def travel(self, direction: int, arrive: Callable[..., object], *args: object, again: bool = False) -> None:
        """`again`: if it is lost with the connection, it is sent on the next one."""
        now = self._loop.time()
        if self.ended or (direction == DOWN and now < self._cut_until):
            return
        at = max(self._arrival[direction] + _TICK_S, max(now, self._held_until) + self._delay())
        self._arrival[direction] = at
        self._loop.call_at(at, self._arrive, direction, self._cuts, again, arrive, args)

    def stall(self, seconds: float) -> None:
        self._held_until = self._loop.time() + seconds

    def cut(self, seconds: float) -> None:
        self._cuts += 1
        self.stall(seconds)
        self._cut_until = self._held_until

    @property
    def held(self) -> bool:
        return self._loop.time() < self._held_until

    def heal(self) -> None:
        self._held_until = self._cut_until = self._loop.time()

    def _arrive(
        self, direction: int, cuts: int, again: bool, arrive: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        if cuts == self._cuts and not (self.ended and direction == DOWN):
            arrive(*args)
        elif again:
            self.travel(direction, arrive, *args, again=True)


class Subscriber(NamedTuple):
    pattern: str
    wire: Wire
    deliver: Callable[[str, bytes, str, int], None]  # subject, payload, where to reply, status
    watch: Callable[[bytes], None] | None = None  # is told what is sent to it, whether it arrives or not


class Message(NamedTuple):
    seq: int
    data: bytes


class Append(NamedTuple):
    subject: str
    payload: bytes
    expected: str | None


class SimulatedBroker:
    """Methods are what happens at the broker, when a message has arrived there."""

    def __init__(self, rng: RandomSource, fails: Callable[[], bool]) -> None:
        self._rng = rng
        self._fails = fails
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._messages: dict[str, list[Message]] = {}
        self._late: dict[str, Append] = {}  # by subject: of an earlier owner, before any other
        self._last = self._connections = 0

    def new_connection(self) -> int:
        self._connections += 1
        return self._connections

    def subscribe(self, subscriber: Subscriber) -> None:
        if not subscriber.wire.ended:
            self._subscribers.setdefault(subscriber.pattern, []).append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        found = self._subscribers.get(subscriber.pattern, [])
        if subscriber in found:
            found.remove(subscriber)

    def close(self, wire: Wire) -> None:
        wire.ended = True
        for pattern, found in self._subscribers.items():
            self._subscribers[pattern] = [each for each in found if each.wire is not wire]

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        above = ".".join([*subject.split(".")[:3], "*", "*"])  # the only pattern with wildcards: all sites of a shard
        found = [*self._subscribers.get(subject, ()), *self._subscribers.get(above, ())]
        if not found and reply:
            self._deliver(self._subscribers.get(reply, []), reply, b"", "", _NO_RESPONDERS)
        self._deliver(found, subject, payload, reply, 0)

    def _deliver(self, found: list[Subscriber], subject: str, payload: bytes, reply: str, status: int) -> None:
        for each in found:
            if each.watch is not None and not status:
                each.watch(payload)
            each.wire.travel(DOWN, each.deliver, subject, payload, reply, status)

    # JetStream

    def append(self, subject: str, payload: bytes, expected: str | None) -> Message:
        late = self._late.pop(subject, None)
        if late is not None and late.payload != payload:
            with suppress(APIError, NatsTimeout):
                self.append(*late)
        fails = self._fails()
        if fails and self._rng.randbelow(2):
            raise APIError(code=503, description="insufficient storage", err_code=_NO_SPACE)
        messages = self._messages.setdefault(subject, [])
        if expected is not None and int(expected) != (messages[-1].seq if messages else 0):
            raise APIError(code=400, description="wrong last sequence", err_code=_WRONG_LAST_SEQUENCE)
        self._last += 1
        messages.append(Message(self._last, payload))
        if fails:  # the confirmation is lost
            raise NatsTimeout
        return messages[-1]

    def append_of_killed(self, append: Append) -> None:
        """Append for a coordinator that is killed now: with no effect, at once, or just before the next append."""
        fate = self._rng.randbelow(3)
        if fate == 1:
            with suppress(APIError, NatsTimeout):
                self.append(*append)
        elif fate == 2:
            self._late[append.subject] = append

    def append_of_stalled(self, append: Append) -> None:
        """It arrives when the connection works again; or before, just before that of another coordinator. Then it is
        rejected later, as if its confirmation had been lost.
        """
        if self._rng.randbelow(2):
            self._late[append.subject] = append

    def next_message(self, subject: str, seq: int) -> Message:
        messages = self._messages.get(subject, [])
        index = bisect_left(messages, seq, key=lambda message: message.seq)
        if index == len(messages):
            raise NotFoundError
        return messages[index]

    def last_message(self, subject: str) -> Message:
        if not self._messages.get(subject):
            raise NotFoundError
        return self._messages[subject][-1]

    def purge(self, subject: str, seq: int) -> None:
        self._messages[subject] = [message for message in self._messages[subject] if message.seq >= seq]

    def update_key(self, key: str, value: bytes, last: int) -> None:
        messages = self._messages.setdefault(f"$KV.{BUCKET}.{key}", [])
        if last != (messages[-1].seq if messages else 0):
            raise KeyWrongLastSequenceError
        self._last += 1
        messages[:] = [Message(self._last, value)]


# A coordinator's end


class Received(NamedTuple):
    """The part of `nats.aio.msg.Msg` that is used."""

    subject: str
    data: bytes
    reply: str
    headers: dict[str, str]


class Subscription:
    subscriber: Subscriber

    def __init__(self, broker: SimulatedBroker, wire: Wire, arrived: asyncio.Queue[Received]) -> None:
        self.ended = False  # also if the broker is not told, because the connection is cut
        self._broker = broker
        self._wire = wire
        self._arrived = arrived

    async def next_msg(self, timeout: float) -> Received:
        return await asyncio.wait_for(self._arrived.get(), timeout)

    async def unsubscribe(self) -> None:
        self.ended = True
        self._wire.travel(UP, self._broker.unsubscribe, self.subscriber, again=True)


class MemberConnection:
    """The part of `nats.aio.client.Client` and its JetStream that a coordinator uses. Handlers run in `context`."""

    is_closed = False

    def __init__(self, broker: SimulatedBroker, wire: Wire, context: Context) -> None:
        self.wire = wire
        self._broker = broker
        self._context = context
        self._on_append: Callable[[], None] | None = None
        self._number, self._inboxes = broker.new_connection(), 0
        self._loop = asyncio.get_running_loop()

    async def _ask(self, timeout: float, work: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T | Exception) -> None:
            if answer.done():
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def execute() -> None:
            try:
                result: T | Exception = work()
            except Exception as error:
                result = error
            self.wire.travel(DOWN, settle, result)

        self.wire.travel(UP, execute)
        timer = self._loop.call_later(timeout, settle, NatsTimeout())
        try:
            return await answer
        finally:
            timer.cancel()

    def new_inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self._number}.{self._inboxes}"

    async def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        self.wire.travel(UP, self._broker.publish, subject, payload, reply)

    async def subscribe(
        self, subject: str, queue: str = "", cb: Callable[[Received], Coroutine[Any, Any, None]] | None = None
    ) -> Subscription:
        arrived = asyncio.Queue[Received]()
        subscription = Subscription(self._broker, self.wire, arrived)

        def deliver(subject: str, payload: bytes, reply: str, status: int) -> None:
            message = Received(subject, payload, reply, {"Status": str(status)} if status else {})
            if subscription.ended:
                return
            if cb is not None:
                self._context.run(self._loop.create_task, cb(message))
            else:
                arrived.put_nowait(message)

        def arrive() -> None:
            if not subscription.ended:
                self._broker.subscribe(subscription.subscriber)

        subscription.subscriber = Subscriber(subject, self.wire, deliver)
        self.wire.travel(UP, arrive, again=True)  # the library repeats its subscriptions on a new connection
        return subscription

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        self._broker.close(self.wire)

    def kill_at_next_append(self, on_killed: Callable[[], None] | None) -> None:
        self._on_append = on_killed

    def append(self, append: Append) -> Message:
        """At the broker."""
        on_killed, self._on_append = self._on_append, None
        if on_killed is None:
            return self._broker.append(*append)
        self.end()
        self._broker.append_of_killed(append)
        on_killed()
        raise NatsTimeout

    def jetstream(self, timeout: float) -> "JetStream":
        return JetStream(self._broker, partial(self._ask, timeout), self._on_sending, self.append)

    def _on_sending(self, append: Append) -> None:
        if self.wire.held:
            self._broker.append_of_stalled(append)


class JetStream:
    def __init__(
        self,
        broker: SimulatedBroker,
        ask: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]],
        on_sending: Callable[[Append], None],
        append: Callable[[Append], Message],
    ) -> None:
        self._broker = broker
        self._ask = ask
        self._on_sending = on_sending
        self._append = append

    async def publish(
        self, subject: str, payload: bytes, timeout: float, stream: str, headers: dict[str, str] | None = None
    ) -> Message:
        expected = next(iter(headers.values())) if headers else None
        append = Append(subject, payload, expected)
        self._on_sending(append)
        return await self._ask(lambda: self._append(append))  # type: ignore[no-any-return]

    async def get_msg(self, stream: str, seq: int, subject: str, next: bool) -> Message:
        return await self._ask(lambda: self._broker.next_message(subject, seq))  # type: ignore[no-any-return]

    async def get_last_msg(self, stream: str, subject: str) -> Message:
        return await self._ask(lambda: self._broker.last_message(subject))  # type: ignore[no-any-return]

    async def purge_stream(self, stream: str, seq: int, subject: str) -> None:
        await self._ask(lambda: self._broker.purge(subject, seq))

    async def update(self, key: str, value: bytes, last: int) -> None:
        """Update the bucket."""
        await self._ask(lambda: self._broker.update_key(key, value, last))


# A process's end


class SiteSocket:
    """The part of `NatsSocket` that `NatsTransport` uses."""

    def __init__(
        self,
        broker: SimulatedBroker,
        wire: Wire,
        notify: Callable[[], None],
        watch: Callable[[bytes], None],
        record: Callable[[int, bytes], None],
    ) -> None:
        self.discovered: list[BrokerNode] = []
        self._broker = broker
        self._wire = wire
        self._notify = notify
        self._watch = watch
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._subscribers: list[Subscriber] = []
        self._arrived: list[Delivery] = []
        self._lost: str | None = None

    @property
    def readable(self) -> bool:
        return bool(self._arrived) or self._lost is not None

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        self._record(UP, payload)
        self._wire.travel(UP, self._broker.publish, subject, payload, reply)

    def subscribe(self, subject: str) -> int:
        number = len(self._subscribers)
        watch = self._watch if subject.startswith("countless.down.") else None
        subscriber = Subscriber(subject, self._wire, partial(self._on_message, number), watch)
        self._subscribers.append(subscriber)
        self._wire.travel(UP, self._broker.subscribe, subscriber)
        return number

    def unsubscribe(self, number: int) -> None:
        self._wire.travel(UP, self._broker.unsubscribe, self._subscribers[number])

    def _on_message(self, number: int, subject: str, payload: bytes, reply: str, status: int) -> None:
        self._arrived.append(Delivery(number, subject, payload, status))
        self._notify()

    def receive(self) -> list[Delivery]:
        if not self._arrived and self._lost is not None:
            raise ConnectionLost(self._lost)
        arrived, self._arrived = self._arrived, []
        if self._lost is not None:
            self._notify()
        return arrived

    def break_down(self, rng: RandomSource) -> None:
        """Lose the frames under way, or only those to the process, which notices it then.

        Otherwise it may be told, or has to find out by itself.
        """
        if not rng.randbelow(3):
            self._broker.close(self._wire)
            return self.shutdown()
        self._wire.cut(float("inf"))
        self._wire.ended = True
        if rng.randbelow(4):
            self._loop.call_later(rng.random() * MAX_NOTICE_S, self.shutdown)
        return None

    def shutdown(self) -> None:
        self._lost = "connection to the broker lost"
        self._notify()

    def abandon(self) -> None:
        self._broker.close(self._wire)


class SimulatedNatsTransport(NatsTransport):
    def __init__(
        self,
        site: str,
        shards: int,
        open_socket: Callable[["SimulatedNatsTransport"], SiteSocket],
        notify: Callable[[], None],
        clock: Callable[[], float],
        new_name: Callable[[], str],
        rng: RandomSource,
    ) -> None:
        super().__init__(Broker.parse("nats://simulated"), site, clock, new_name, rng)
        self.notify = notify
        self._shard_count = shards
        self._open_socket = open_socket

    def shard_count(self) -> int:
        """Without asking: no time can pass in a call that blocks."""
        return self._shard_count

    def _open(self, node: BrokerNode) -> SiteSocket:  # type: ignore[override]
        return self._open_socket(self)

    def receive(self) -> dict[int, Any]:
        return super().receive() if self.link is not None and self.link.readable else {}

    @property
    def link(self) -> SiteSocket | None:
        return self._connection  # type: ignore[return-value]
