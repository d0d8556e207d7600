"""Conversations over NATS: one connection to the broker, and a line to each shard that has a counter of ours.

What the lines look like is in `wire/nats_subjects.py`. A connection that breaks ends them all; they begin again on
another, to the next node of the broker.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from time import monotonic

import msgspec

from countless.client.transport.base import News
from countless.client.transport.nats_socket import NatsSocket
from countless.client.transport.websocket import ConnectionLost
from countless.errors import ProtocolError
from countless.randomness import SystemRandom
from countless.wire import nats_subjects as nats
from countless.wire.frames import encode_frames
from countless.wire.nats_broadcast import unpack_round
from countless.wire.nats_protocol import Delivery
from countless.wire.nats_url import Broker, Server

_SILENCE = 5.0  # seconds: less than the patience of a conversation, so that its next attempt goes elsewhere


class NatsLine:
    """A line to one shard, on one connection."""

    def __init__(self, link: NatsSocket, shard: int, site: str) -> None:
        name = token_hex(8)
        self.card: nats.Card | None = None
        self.subscriptions: dict[int, str] = {}  # what comes with which number: words, rounds of all, rounds of a group
        self._link = link
        self._shard = shard
        self._up, self._inbox = nats.up(shard, site, name), nats.down(shard, site, name)
        self._sent = self._heard = self._fanned = 0
        self._listen(self._inbox, "words")

    def _listen(self, subject: str, what: str) -> None:
        self.subscriptions[self._link.listen(subject)] = what

    def send(self, frame: bytes) -> None:
        """One frame. The first, the hello, wants to know whether anybody is there."""
        self._link.say(self._up, nats.pack_up(self._sent, frame), "" if self._sent else self._inbox)
        self._sent += 1

    def receive(self, delivery: Delivery) -> bytes | None:
        """The frame in it, if there is one."""
        if delivery.status:
            raise ConnectionLost("no coordinator has this counter at present")
        what = self.subscriptions[delivery.subscription]
        return self._words(delivery.payload) if what == "words" else self._round(delivery.payload, what)

    def _words(self, data: bytes) -> bytes | None:
        message = nats.unpack_down(data)
        if isinstance(message, nats.Closed):
            raise ConnectionLost(f"the coordinator has hung up: {message.reason}")
        if isinstance(message, nats.Card):
            if self.card is not None:
                raise ConnectionLost("two coordinators answer at once")
            self.card = message
            self._listen(nats.rounds(self._shard, message.session, nats.EVERYBODY), nats.EVERYBODY)
            self._listen(nats.rounds(self._shard, message.session, message.group), "group")
            return None
        self._heard += 1
        if (message.number, message.fanned) != (self._heard, self._fanned):
            raise ConnectionLost("a message of the coordinator was lost on the way")
        return message.frame

    def _round(self, data: bytes, what: str) -> bytes | None:
        start = self.card and unpack_round(data, self.card, what == nats.EVERYBODY)
        if start is None:
            return None
        self._fanned += 1
        return next(encode_frames([start]))

    def close(self) -> None:
        """Say goodbye, and listen no more."""
        self._link.say(self._up, nats.GOODBYE)
        for number in self.subscriptions:
            self._link.ignore(number)


class NatsCarrier:
    """Lines to all shards over one connection."""

    def __init__(self, broker: Broker, site: str) -> None:
        self._broker = broker
        self._servers: list[Server] = list(broker.servers)
        self._turn = SystemRandom().randbelow(len(self._servers))  # not everybody at the same node
        self._site = nats.token(site)
        self._shards = 0
        self._waits: float | None = None  # since when a hello waits for the broker to say anything at all
        self._link: NatsSocket | None = None
        self._lines: dict[int, NatsLine] = {}
        self._calls: dict[int, int] = {}  # by subscription, the shard whose coordinators call there

    def shards(self) -> int:
        """As many as the coordinators say."""
        try:
            version, shards = _answer(self._connected().ask(nats.SHARDS, nats.down("any", self._site, token_hex(8))))
        except ConnectionLost:
            self.drop()
            raise
        if version != nats.LAYOUT:
            raise ConnectionLost(f"the coordinators speak version {version} over NATS, and this client {nats.LAYOUT}")
        self._shards = shards
        return shards

    def shard_of(self, counter: str) -> int:
        """By its name."""
        return nats.shard_of(counter, self._shards)

    def open(self, shard: int) -> Callable[[bytes], None]:
        """A line with a new name."""
        link = self._connected()
        now = monotonic()
        if self._waits is None:
            self._waits = now
        elif now - self._waits > _SILENCE:  # the node itself does not answer
            link.shut()  # which ends the other lines too
            raise ConnectionLost("the broker has fallen silent")
        if shard not in self._calls.values():
            self._calls[link.listen(nats.call(shard))] = shard
        line = self._lines[shard] = NatsLine(link, shard, self._site)
        return line.send

    def _connected(self) -> NatsSocket:
        if self._link is None:
            server = self._servers[self._turn % len(self._servers)]
            self._turn += 1
            self._link = NatsSocket(self._broker, server)
            self._waits = None
            self._servers = list(dict.fromkeys((*self._broker.servers, *self._link.discovered)))
        return self._link

    def sockets(self) -> list[socket.socket]:
        """The socket, while there is one."""
        return [self._link.socket] if self._link else []

    def receive(self) -> dict[int, News]:
        """What has arrived, by shard."""
        news: dict[int, News] = {}
        self._waits = None
        try:
            for delivery in self._link.receive() if self._link else ():
                self._sort(delivery, news)
        except ConnectionLost as error:
            news = dict.fromkeys(self._lines, error)
            self.drop()
        return news

    def _sort(self, delivery: Delivery, news: dict[int, News]) -> None:
        called = self._calls.get(delivery.subscription)
        if called is not None:
            line = self._lines.get(called)
            if line is None or line.card is None or line.card.session != delivery.payload.decode(errors="replace"):
                news[called] = ConnectionLost("another coordinator has taken over")
            return
        for shard, line in self._lines.items():
            if delivery.subscription in line.subscriptions:
                self._hear(shard, line, delivery, news)
                return

    @staticmethod
    def _hear(shard: int, line: NatsLine, delivery: Delivery, news: dict[int, News]) -> None:
        so_far = news.setdefault(shard, [])
        if isinstance(so_far, ConnectionLost):
            return
        try:
            frame = line.receive(delivery)
        except ConnectionLost as error:
            news[shard] = error
        except ProtocolError as error:
            news[shard] = ConnectionLost(str(error))
        else:
            so_far += [frame] if frame is not None else []

    def hang_up(self, shard: int) -> None:
        """The connection stays, and so does the ear for whoever takes this shard over."""
        line = self._lines.pop(shard, None)
        if line is not None:
            with suppress(ConnectionLost):
                line.close()

    def close(self) -> None:
        """All lines, then the connection."""
        for shard in list(self._lines):
            self.hang_up(shard)
        self.drop()

    def drop(self) -> None:
        """Only the socket."""
        if self._link is not None:
            self._link.drop()
        self._link = None
        self._lines, self._calls = {}, {}


def _answer(payload: bytes) -> tuple[int, int]:
    try:
        return msgspec.msgpack.decode(payload, type=tuple[int, int])
    except msgspec.DecodeError:
        raise ConnectionLost("something else than a coordinator of Countless answers on this broker") from None
