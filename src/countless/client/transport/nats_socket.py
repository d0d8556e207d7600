"""One connection to a node of the NATS broker, for one thread: socket, TLS, login, and nothing of Countless."""

import socket
from contextlib import suppress
from time import monotonic
from typing import Any

from countless.client.transport.base import ConnectionLost, read_available
from countless.errors import InvalidParameter, MissingExtra, ProtocolError
from countless.tls import client_tls_context
from countless.wire.nats_protocol import (
    PING,
    PONG,
    Delivery,
    Event,
    Info,
    Parser,
    Ping,
    Pong,
    ServerError,
    connect,
    publish,
    subscribe,
    unsubscribe,
)
from countless.wire.nats_url import DEFAULT_PORT, Broker, BrokerNode, Credentials


class NatsSocket:
    """An open connection. Every failure is a `ConnectionLost`."""

    def __init__(self, broker: Broker, node: BrokerNode, timeout: float = 10.0) -> None:
        self.discovered: list[BrokerNode] = []  # other nodes of the same broker
        self._timeout = timeout
        self._node = node
        self._parser = Parser()
        self._last_subscription = 0
        try:
            self.socket: socket.socket = socket.create_connection((node.host, node.port), timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ConnectionLost(f"no broker at {node.netloc}: {error}") from error
        try:
            self._log_in(broker)
        except BaseException:
            self.abandon()
            raise

    def _log_in(self, broker: Broker) -> None:
        info = self._wait_for(Info).fields
        if self._node.secure or info.get("tls_required"):
            try:
                self.socket = client_tls_context().wrap_socket(self.socket, server_hostname=self._node.host)
            except OSError as error:
                raise ConnectionLost(f"no broker at {self._node.netloc}: {error}") from error
        self._write(connect(_connect_options(broker, info)) + PING)
        self._wait_for(Pong)

    def request(self, subject: str, inbox: str) -> bytes:
        """Publish an empty request and wait for the reply. Only while there are no other subscriptions."""
        number = self.subscribe(inbox)
        self.publish(subject, b"", inbox)
        reply: Delivery = self._wait_for(Delivery)
        self.unsubscribe(number)
        if reply.status:
            raise ConnectionLost(f"no coordinator behind the broker at {self._node.netloc}")
        return reply.payload

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        self._write(publish(subject, payload, reply))

    def subscribe(self, subject: str) -> int:
        """The number that the deliveries of this subscription carry."""
        self._last_subscription += 1
        self._write(subscribe(subject, self._last_subscription))
        return self._last_subscription

    def unsubscribe(self, number: int) -> None:
        self._write(unsubscribe(number))

    def receive(self) -> list[Delivery]:
        """The deliveries that have arrived. Call it when the socket is readable."""
        return [event for event in self._read() if isinstance(event, Delivery)]

    def shutdown(self) -> None:
        """Break the connection: the socket becomes readable, and `receive` fails."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close the socket without sending anything: in a forked child, the peer belongs to the parent."""
        self.socket.close()

    def _wait_for(self, kind: type[Any]) -> Any:
        deadline = monotonic() + self._timeout
        while monotonic() < deadline:
            for event in self._read():
                if isinstance(event, kind):
                    return event
        raise ConnectionLost(f"the broker at {self._node.netloc} does not answer")

    def _read(self) -> list[Event]:
        try:
            data = read_available(self.socket)
        except OSError as error:
            raise ConnectionLost(f"connection to the broker lost: {error}") from error
        if not data:
            raise ConnectionLost("connection closed by the broker")
        try:
            events = list(self._parser.feed(data))
        except ProtocolError as error:
            raise ConnectionLost(str(error)) from None
        for event in events:
            self._handle(event)
        return events

    def _handle(self, event: Event) -> None:
        if isinstance(event, Ping):
            self._write(PONG)
        elif isinstance(event, ServerError):
            raise ConnectionLost(f"the broker at {self._node.netloc} refuses: {event.reason}")
        elif isinstance(event, Info):
            self.discovered = [
                BrokerNode(host.strip("[]"), int(port or DEFAULT_PORT), self._node.secure)
                for host, _, port in (url.rpartition(":") for url in event.fields.get("connect_urls") or ())
            ]

    def _write(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            self.shutdown()
            raise ConnectionLost(f"connection to the broker lost: {error}") from error


def _connect_options(broker: Broker, info: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": "1",
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "name": "countless site",
        **broker.login,
    }
    try:
        credentials = Credentials.from_environment()
    except (InvalidParameter, MissingExtra) as error:
        raise ConnectionLost(str(error)) from None
    if credentials is not None:
        options |= {"jwt": credentials.jwt, "sig": credentials.sign(info.get("nonce", "")).decode()}
    return options
