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
from countless.wire.nats_protocol import Delivery
from countless.wire.nats_subjects import (
    CLOSE,
    PROTOCOL_VERSION,
    SHARDS_SUBJECT,
    StreamClosed,
    StreamInfo,
    decode_downlink,
    downlink_subject,
    encode_uplink,
    shard_of,
    subject_token,
    takeover_subject,
    uplink_subject,
)
from countless.wire.nats_url import Broker, BrokerNode

_SILENCE = 5.0  # seconds: less than the patience of a conversation, so that its next attempt goes elsewhere


class NatsLine:
    """A stream to one shard, on one connection."""

    def __init__(self, link: NatsSocket, shard: int, site: str) -> None:
        name = token_hex(8)
        self.info: StreamInfo | None = None
        self._link = link
        self._uplink, self._downlink = uplink_subject(shard, site, name), downlink_subject(shard, site, name)
        self._sent = self._received = 0
        self.subscription = link.listen(self._downlink)

    def send(self, frame: bytes) -> None:
        """The first frame has a reply subject: the broker answers there if no coordinator has subscribed."""
        self._link.say(self._uplink, encode_uplink(self._sent, frame), "" if self._sent else self._downlink)
        self._sent += 1

    def receive(self, delivery: Delivery) -> bytes | None:
        """The frame in it, if there is one."""
        if delivery.status:
            raise ConnectionLost("no coordinator has this counter at present")
        message = decode_downlink(delivery.payload)
        if isinstance(message, StreamClosed):
            raise ConnectionLost(f"stream closed by the coordinator: {message.reason}")
        if isinstance(message, StreamInfo):
            if self.info is not None:
                raise ConnectionLost("two coordinators answer at once")
            self.info = message
            return None
        self._received += 1
        if message.number != self._received:
            raise ConnectionLost("frame lost between the coordinator and this site")
        return message.frame

    def close(self) -> None:
        self._link.say(self._uplink, CLOSE)
        self._link.ignore(self.subscription)


class NatsCarrier:
    """Lines to all shards over one connection."""

    def __init__(self, broker: Broker, site: str) -> None:
        self._broker = broker
        self._nodes: list[BrokerNode] = list(broker.nodes)
        self._turn = SystemRandom().randbelow(len(self._nodes))  # not everybody at the same node
        self._site = subject_token(site)
        self._shards = 0
        self._waits: float | None = None  # since when a hello waits for the broker to say anything at all
        self._link: NatsSocket | None = None
        self._lines: dict[int, NatsLine] = {}
        self._calls: dict[int, int] = {}  # by subscription, the shard whose coordinators call there

    def shards(self) -> int:
        """As many as the coordinators say."""
        try:
            version, shards = _answer(
                self._connected().ask(SHARDS_SUBJECT, downlink_subject("any", self._site, token_hex(8)))
            )
        except ConnectionLost:
            self.drop()
            raise
        if version != PROTOCOL_VERSION:
            raise ConnectionLost(f"protocol version over NATS: coordinators {version}, this client {PROTOCOL_VERSION}")
        self._shards = shards
        return shards

    def shard_of(self, counter: str) -> int:
        """By its name."""
        return shard_of(counter, self._shards)

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
            self._calls[link.listen(takeover_subject(shard))] = shard
        line = self._lines[shard] = NatsLine(link, shard, self._site)
        return line.send

    def _connected(self) -> NatsSocket:
        if self._link is None:
            node = self._nodes[self._turn % len(self._nodes)]
            self._turn += 1
            self._link = NatsSocket(self._broker, node)
            self._waits = None
            self._nodes = list(dict.fromkeys((*self._broker.nodes, *self._link.discovered)))
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
            if line is None or line.info is None or line.info.session != delivery.payload.decode(errors="replace"):
                news[called] = ConnectionLost("another coordinator has taken over")
            return
        for shard, line in self._lines.items():
            if delivery.subscription == line.subscription:
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
