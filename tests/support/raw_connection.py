"""Raw frames on a real connection to a coordinator, for peers that break the protocol."""

from select import select
from time import monotonic

from countless.client.transport.base import ConnectionLost
from countless.client.transport.websocket import WebSocketConnection
from countless.wire.frames import DownItem, decode_down
from support.service import TIMEOUT_S


def send_text(connection: WebSocketConnection, text: bytes) -> None:
    """A text frame (RFC 6455, section 5.2), masked with zeros. The protocol has binary frames only."""
    connection.socket.sendall(b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text)


def close_reason(connection: WebSocketConnection) -> str:
    """Wait until the coordinator closes the connection; its reason."""
    try:
        while select([connection.socket], [], [], TIMEOUT_S)[0]:
            connection.receive()
    except ConnectionLost as error:
        return str(error)
    finally:
        connection.close()
    return "not closed"


def receive_until(connection: WebSocketConnection, last: DownItem, seconds: float = TIMEOUT_S) -> list[DownItem]:
    """All items up to `last`; nothing if it does not come in time."""
    items: list[DownItem] = []
    deadline = monotonic() + seconds
    while select([connection.socket], [], [], max(0.0, deadline - monotonic()))[0]:
        items += [item for frame in connection.receive() for item in decode_down(frame)]
        if last in items:
            return items
    return []
