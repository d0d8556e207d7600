"""A WebSocket to one coordinator, for one thread and without an event loop.

The protocol is the sans-IO part of `websockets`; this module adds the socket, the timeouts and the handshake.
"""

import encodings.idna  # noqa: F401 - resolving a host name imports it; a fork must not find it half imported
import logging
import socket
from collections.abc import Callable
from time import monotonic

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from countless.client.transport.base import EMPTY, ConnectionLost, Received, Send, read_available
from countless.client.transport.endpoint import Endpoint, no_coordinator
from countless.errors import InvalidParameter
from countless.tls import client_tls_context
from countless.token_file import token_problem
from countless.wire.frames import MAX_FRAME_BYTES, VERSION
from countless.wire.keys import Key

PATH = "/api/v1/site"
FindToken = Callable[[], tuple[str | None, str]]
_PROTOCOL_LOG = logging.getLogger("countless.websocket.protocol")
_PROTOCOL_LOG.setLevel(logging.INFO)  # at DEBUG the library logs all headers, the token included


class WebSocketTransport:
    """One coordinator, one connection, one shard.

    `find_token` is called for each connection, because the token may have changed: the token, and where it was.
    """

    def __init__(self, endpoint: Endpoint, find_token: FindToken = lambda: (None, "")) -> None:
        self._endpoint = endpoint
        self._find_token = find_token
        self._connection: WebSocketConnection | None = None

    def shard_count(self) -> int:
        return 1

    def shard_of(self, key: Key) -> int:
        return 0

    def open_stream(self, shard: int) -> Send:
        try:
            self._connection = WebSocketConnection(self._endpoint, *self._find_token())
        except InvalidParameter as error:
            raise ConnectionLost(str(error)) from None
        return self._connection.send

    def sockets(self) -> list[socket.socket]:
        return [self._connection.socket] if self._connection else []

    def receive(self) -> dict[int, Received]:
        try:
            return {0: self._connection.receive() if self._connection else EMPTY}
        except ConnectionLost as error:
            return {0: error}

    def close_stream(self, shard: int) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self.close_stream(0)

    def abandon(self) -> None:
        if self._connection is not None:
            self._connection.abandon()
            self._connection = None


class WebSocketConnection:
    """An open connection. Every failure is a `ConnectionLost`."""

    def __init__(self, endpoint: Endpoint, token: str | None, source: str = "", timeout: float = 10.0) -> None:
        self._timeout = timeout
        uri = parse_uri(f"{'wss' if endpoint.secure else 'ws'}://{endpoint.netloc}{PATH}")
        self._protocol = ClientProtocol(uri, max_size=MAX_FRAME_BYTES, logger=_PROTOCOL_LOG)
        self.socket = self._connect(endpoint)
        try:
            self._handshake(token, source)
        except BaseException:
            self.abandon()
            raise

    def _connect(self, endpoint: Endpoint) -> socket.socket:
        try:
            tls = client_tls_context() if endpoint.secure else None
            plain = socket.create_connection((endpoint.host, endpoint.port), self._timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return tls.wrap_socket(plain, server_hostname=endpoint.host) if tls else plain
        except (OSError, UnicodeError) as error:  # UnicodeError: the host name cannot be encoded
            raise ConnectionLost(no_coordinator(endpoint, endpoint.netloc, error)) from error

    def _handshake(self, token: str | None, source: str) -> None:
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
            raise ConnectionLost(_reason(self._protocol.handshake_exc, token, source))

    def send(self, frame: bytes) -> None:
        if self._protocol.state is not State.OPEN:
            raise self._closed()
        self._protocol.send_binary(frame)
        self._write()

    def receive(self) -> list[bytes]:
        """The frames that have arrived. Call it when the socket is readable."""
        self._read()
        frames = []
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.BINARY and event.fin:
                frames.append(bytes(event.data))
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT, Opcode.BINARY):
                raise ConnectionLost("the coordinator sent a message that is not one binary frame")
        self._write()
        if not frames and self._protocol.state is not State.OPEN:
            raise self._closed()
        return frames

    def _closed(self) -> ConnectionLost:
        last = self._protocol.close_rcvd or self._protocol.close_sent
        reason = (last.reason or last.code) if last else "without a reason"
        return ConnectionLost(f"connection closed by the coordinator: {reason}")

    def close(self) -> None:
        """Send a close frame if that is possible, then close the socket."""
        try:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._write()
        except OSError:
            pass
        self.abandon()

    def abandon(self) -> None:
        """Close the socket without sending anything: in a forked child, the peer belongs to the parent."""
        self.socket.close()

    def _read(self) -> None:
        try:
            data = read_available(self.socket)
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error}") from error
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
            raise ConnectionLost(f"connection lost: {error}") from error


def _reason(error: Exception, token: str | None, source: str) -> str:
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        refused = status in (401, 403)
        why = token_problem("site", token, source) if refused else "is there a coordinator behind it?"
        return f"the coordinator refuses ({status}): {why}"
    if isinstance(error.__cause__, EOFError):
        return "connection lost before the coordinator answered"
    if isinstance(error, InvalidHandshake):
        return f"not a coordinator of Countless: {error}"
    return f"connection lost: {error}"
