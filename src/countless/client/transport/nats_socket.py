"""One connection to a node of the broker, for one thread: the socket, TLS, the login, and nothing of Countless."""

import socket
import ssl
from contextlib import suppress
from time import monotonic
from typing import Any

from countless.client.transport.websocket import ConnectionLost
from countless.errors import InvalidParameter, ProtocolError
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
    """An open connection. Everything that goes wrong is a `ConnectionLost`."""

    def __init__(self, broker: Broker, server: BrokerNode, timeout: float = 10.0) -> None:
        self.discovered: list[BrokerNode] = []  # other nodes of the same broker
        self._timeout = timeout
        self._server = server
        self._parser = Parser()
        self._subscriptions = 0
        try:
            self.socket: socket.socket = socket.create_connection((server.host, server.port), timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ConnectionLost(f"no broker at {server.netloc}: {error}") from error
        try:
            self._log_in(broker)
        except BaseException:
            self.drop()
            raise

    def _log_in(self, broker: Broker) -> None:
        info = self._await(Info).fields
        if self._server.secure or info.get("tls_required"):
            try:
                self.socket = client_tls_context().wrap_socket(self.socket, server_hostname=self._server.host)
            except OSError as error:
                raise ConnectionLost(f"no broker at {self._server.netloc}: {error}") from error
        self._write(connect(_introduction(broker, info)) + PING)
        self._await(Pong)

    def ask(self, subject: str, inbox: str) -> bytes:
        """A question to whoever answers it."""
        number = self.listen(inbox)
        self.say(subject, b"", inbox)
        answer: Delivery = self._await(Delivery)
        self.ignore(number)
        if answer.status:
            raise ConnectionLost(f"no coordinator behind the broker at {self._server.netloc}")
        return answer.payload

    def say(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Publish."""
        self._write(publish(subject, payload, reply))

    def listen(self, subject: str) -> int:
        """Subscribe; the number that deliveries will carry."""
        self._subscriptions += 1
        self._write(subscribe(subject, self._subscriptions))
        return self._subscriptions

    def ignore(self, number: int) -> None:
        """Subscribe no more."""
        self._write(unsubscribe(number))

    def receive(self) -> list[Delivery]:
        """What has arrived: call it when the socket is readable."""
        return [event for event in self._read() if isinstance(event, Delivery)]

    def shut(self) -> None:
        """Give it up, so that whoever waits for it finds out."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Let go."""
        self.socket.close()

    def _await(self, kind: type[Any]) -> Any:
        """Only before conversations begin: whatever else arrives is of no interest yet."""
        deadline = monotonic() + self._timeout
        while monotonic() < deadline:
            for event in self._read():
                if isinstance(event, kind):
                    return event
        raise ConnectionLost(f"the broker at {self._server.netloc} does not answer")

    def _read(self) -> list[Event]:
        try:
            data = self.socket.recv(1 << 16)
            while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
                data += self.socket.recv(1 << 16)
        except OSError as error:
            raise ConnectionLost(f"the connection to the broker broke: {error}") from error
        if not data:
            raise ConnectionLost("the broker has hung up")
        try:
            events = list(self._parser.feed(data))
        except ProtocolError as error:
            raise ConnectionLost(str(error)) from None
        for event in events:
            self._look_at(event)
        return events

    def _look_at(self, event: Event) -> None:
        if isinstance(event, Ping):
            self._write(PONG)
        elif isinstance(event, ServerError):
            raise ConnectionLost(f"the broker at {self._server.netloc} refuses: {event.reason}")
        elif isinstance(event, Info):
            self.discovered = [
                BrokerNode(host.strip("[]"), int(port or DEFAULT_PORT), self._server.secure)
                for host, _, port in (url.rpartition(":") for url in event.fields.get("connect_urls") or ())
            ]

    def _write(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            self.shut()
            raise ConnectionLost(f"the connection to the broker broke: {error}") from error


def _introduction(broker: Broker, info: dict[str, Any]) -> dict[str, Any]:
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
    except InvalidParameter as error:
        raise ConnectionLost(str(error)) from None
    if credentials is not None:
        options |= {"jwt": credentials.jwt, "sig": credentials.sign(info.get("nonce", "")).decode()}
    return options
