"""Frames over NATS: one connection to the broker, and a stream to each shard that has a counter or budget of ours.

`wire/nats_subjects.py` describes the streams. When the connection breaks, all streams end; they are opened again on a
connection to the next node of the broker.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Protocol

import msgspec

from countless.client.transport.base import ConnectionLost, Received, Send
from countless.client.transport.nats_socket import NatsSocket
from countless.core.random_source import RandomSource
from countless.errors import ProtocolError
from countless.randomness import SYSTEM_RANDOM, random_name
from countless.wire.keys import Key
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

_NODE_TIMEOUT_S = 5.0  # shorter than the timeout of a hello, so that the next attempt uses another node


class BrokerConnection(Protocol):
    """The part of a connection to the broker that a stream needs."""

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None: ...

    def subscribe(self, subject: str) -> int: ...

    def unsubscribe(self, number: int) -> None: ...


class NatsStream:
    """A stream to one shard, on one connection."""

    def __init__(self, connection: BrokerConnection, shard: int, site_token: str, name: str) -> None:
        self.info: StreamInfo | None = None
        self._connection = connection
        self._uplink = uplink_subject(shard, site_token, name)
        self._downlink = downlink_subject(shard, site_token, name)
        self._sent = self._received = 0
        self.subscription = connection.subscribe(self._downlink)

    def send(self, frame: bytes) -> None:
        """The first frame has a reply subject: the broker answers there if no coordinator has subscribed."""
        self._connection.publish(self._uplink, encode_uplink(self._sent, frame), "" if self._sent else self._downlink)
        self._sent += 1

    def receive(self, delivery: Delivery) -> list[bytes]:
        """The frame in it, if there is one."""
        if delivery.status:
            raise ConnectionLost("no coordinator owns this shard at present")
        message = decode_downlink(delivery.payload)
        if isinstance(message, StreamClosed):
            raise ConnectionLost(f"stream closed by the coordinator: {message.reason}")
        if isinstance(message, StreamInfo):
            if self.info is not None:
                raise ConnectionLost("two coordinators have answered the same hello")
            self.info = message
            return []
        self._received += 1
        if message.number != self._received:
            raise ConnectionLost("frame lost between the coordinator and this site")
        return [message.frame]

    def close(self) -> None:
        self._connection.publish(self._uplink, CLOSE)
        self._connection.unsubscribe(self.subscription)


class NatsTransport:
    """Streams to all shards over one connection."""

    def __init__(
        self,
        broker: Broker,
        site: str,
        clock: Callable[[], float] = monotonic,
        new_name: Callable[[], str] = random_name,
        rng: RandomSource = SYSTEM_RANDOM,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._new_name = new_name
        self._nodes: list[BrokerNode] = list(broker.nodes)
        self._next_node = rng.randbelow(len(self._nodes))  # clients spread over the nodes
        self._site_token = subject_token(site)
        self._shard_count = 0
        self._unanswered_since: float | None = None  # when the first hello was sent, if nothing has arrived since
        self._connection: NatsSocket | None = None
        self._streams: dict[int, NatsStream] = {}
        self._takeovers: dict[int, int] = {}  # subscription -> the shard whose new owner announces itself there

    def shard_count(self) -> int:
        try:
            inbox = downlink_subject("any", self._site_token, self._new_name())
            version, self._shard_count = _decode_shards(self._connect().request(SHARDS_SUBJECT, inbox))
        except ConnectionLost:
            self.abandon()
            raise
        if version != PROTOCOL_VERSION:
            raise ConnectionLost(f"protocol version over NATS: coordinators {version}, this client {PROTOCOL_VERSION}")
        return self._shard_count

    def shard_of(self, key: Key) -> int:
        return shard_of(key, self._shard_count)

    def open_stream(self, shard: int) -> Send:
        connection = self._connect()
        now = self._clock()
        if self._unanswered_since is None:
            self._unanswered_since = now
        elif now - self._unanswered_since > _NODE_TIMEOUT_S:
            connection.shutdown()  # which ends the other streams too
            raise ConnectionLost("the broker does not answer")
        if shard not in self._takeovers.values():
            self._takeovers[connection.subscribe(takeover_subject(shard))] = shard
        stream = self._streams[shard] = NatsStream(connection, shard, self._site_token, self._new_name())
        return stream.send

    def _connect(self) -> NatsSocket:
        if self._connection is None:
            node = self._nodes[self._next_node % len(self._nodes)]
            self._next_node += 1
            self._connection = self._open(node)
            self._unanswered_since = None
            self._nodes = list(dict.fromkeys((*self._broker.nodes, *self._connection.discovered)))
        return self._connection

    def _open(self, node: BrokerNode) -> NatsSocket:
        return NatsSocket(self._broker, node)

    def sockets(self) -> list[socket.socket]:
        return [self._connection.socket] if self._connection else []

    def receive(self) -> dict[int, Received]:
        received: dict[int, Received] = {}
        self._unanswered_since = None
        try:
            for delivery in self._connection.receive() if self._connection else ():
                self._dispatch(delivery, received)
        except ConnectionLost as error:
            received = dict.fromkeys(self._streams, error)
            self.abandon()
        return received

    def _dispatch(self, delivery: Delivery, received: dict[int, Received]) -> None:
        shard = self._takeovers.get(delivery.subscription)
        if shard is not None:
            stream = self._streams.get(shard)
            owner = stream.info.ownership_id if stream and stream.info else None
            if owner != delivery.payload.decode(errors="replace"):
                received[shard] = ConnectionLost("another coordinator has taken over")
            return
        for shard, stream in self._streams.items():
            if delivery.subscription == stream.subscription:
                _collect(shard, stream, delivery, received)
                return

    def close_stream(self, shard: int) -> None:
        """The connection stays open, and so does the subscription for take-overs of this shard."""
        stream = self._streams.pop(shard, None)
        if stream is not None:
            with suppress(ConnectionLost):
                stream.close()

    def close(self) -> None:
        for shard in list(self._streams):
            self.close_stream(shard)
        self.abandon()

    def abandon(self) -> None:
        if self._connection is not None:
            self._connection.abandon()
        self._connection = None
        self._streams, self._takeovers = {}, {}


def _collect(shard: int, stream: NatsStream, delivery: Delivery, received: dict[int, Received]) -> None:
    frames = received.setdefault(shard, [])
    if isinstance(frames, ConnectionLost):
        return
    try:
        frames += stream.receive(delivery)
    except ConnectionLost as error:
        received[shard] = error
    except ProtocolError as error:
        received[shard] = ConnectionLost(str(error))


def _decode_shards(reply: bytes) -> tuple[int, int]:
    try:
        return msgspec.msgpack.decode(reply, type=tuple[int, int])
    except msgspec.DecodeError:
        raise ConnectionLost("another program than a coordinator of Countless answers on this broker") from None
