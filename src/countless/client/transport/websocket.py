"""A WebSocket to the coordinator, for one thread: no event loop, no second thread, nothing but a socket.

The protocol itself is the sans-IO part of `websockets`; here are the socket, the time-outs and the handshake.
"""

import encodings.idna  # noqa: F401 - names of hosts need it: a fork must not find it half imported by the thread
import socket
import ssl
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from countless.errors import InvalidParameter
from countless.tls import client_tls_context
from countless.wire.frames import MAX_FRAME_BYTES, VERSION

PORT = 2686
PATH = "/api/v1/site"
_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


class ConnectionLost(OSError):
    """The connection could not be made, or is over; the message says why."""


class Endpoint(NamedTuple):
    """Where a coordinator is."""

    host: str
    port: int
    secure: bool

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """From `http://host:port`, `wss://host`, or just `host:port`."""
        allowed = "an address such as http://127.0.0.1:2686"
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            secure, host, port = _SECURE[parts.scheme], parts.hostname, parts.port
        except (KeyError, ValueError, AttributeError, TypeError):
            raise InvalidParameter("url", url, allowed) from None
        if not host or parts.path.strip("/") or parts.query or parts.username:
            raise InvalidParameter("url", url, allowed)
        return cls(host, port or (443 if secure else PORT), secure)

    @property
    def netloc(self) -> str:
        """Host and port, as URLs write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def base(self) -> str:
        """The URL of the API."""
        return f"{'https' if self.secure else 'http'}://{self.netloc}"


class WebSocketConnection:
    """An open connection. Everything that goes wrong is a `LinkError`."""

    def __init__(self, place: Endpoint, token: str | None, timeout: float = 10.0) -> None:
        self._timeout = timeout
        uri = parse_uri(f"{'wss' if place.secure else 'ws'}://{place.netloc}{PATH}")
        self._protocol = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self.socket = self._connect(place)
        try:
            self._shake_hands(token)
        except BaseException:
            self.abandon()
            raise

    def _connect(self, place: Endpoint) -> socket.socket:
        try:
            plain = socket.create_connection((place.host, place.port), self._timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return client_tls_context().wrap_socket(plain, server_hostname=place.host) if place.secure else plain
        except (OSError, UnicodeError) as error:  # a name may be none that can be looked up
            raise ConnectionLost(f"no coordinator at {place.netloc}: {error}") from error

    def _shake_hands(self, token: str | None) -> None:
        request = self._protocol.connect()
        request.headers["User-Agent"] = f"countless-site/{VERSION}"
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        self._protocol.send_request(request)
        self._write()
        deadline = monotonic() + self._timeout
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            if monotonic() > deadline:
                raise ConnectionLost("the coordinator does not answer")
            self._read()
        self._protocol.events_received()
        if self._protocol.handshake_exc is not None:
            raise ConnectionLost(_reason(self._protocol.handshake_exc))

    def send(self, frame: bytes) -> None:
        """One binary frame."""
        if self._protocol.state is not State.OPEN:
            raise ConnectionLost("the connection is closed")
        self._protocol.send_binary(frame)
        self._write()

    def receive(self) -> list[bytes]:
        """What has arrived: call it when the socket is readable."""
        self._read()
        frames = []
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.BINARY and event.fin:
                frames.append(bytes(event.data))
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT, Opcode.BINARY):
                raise ConnectionLost("the coordinator sent something that is no frame")
        self._write()
        if not frames and self._protocol.state is not State.OPEN:
            last = self._protocol.close_rcvd or self._protocol.close_sent
            raise ConnectionLost(f"the coordinator has hung up: {last and (last.reason or last.code)}")
        return frames

    def close(self) -> None:
        """Hang up politely."""
        try:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._write()
        except OSError:
            pass
        self.abandon()

    def abandon(self) -> None:
        """Let go of the socket without a word: after a fork the word would be the parent's."""
        self.socket.close()

    def _read(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
            while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
                data += self.socket.recv(1 << 16)
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()

    def _write(self) -> None:
        try:
            for data in self._protocol.data_to_send():
                if data:
                    self.socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        why = "a token of scope site is needed" if status in (401, 403) else "is there a coordinator behind it?"
        return f"the coordinator refuses ({status}): {why}"
    if isinstance(error, InvalidHandshake):
        return f"not a coordinator of Countless: {error}"
    return f"the connection broke: {error}"
