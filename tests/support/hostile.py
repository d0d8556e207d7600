"""A peer of the coordinator that does what it likes: raw frames on a real connection."""

from select import select
from time import monotonic

from countless.client.transport.base import ConnectionLost
from countless.client.transport.websocket import WebSocketConnection
from countless.wire.frames import DownItem, decode_down
from support.service import TIMEOUT_S


def fate(link: WebSocketConnection) -> str:
    """Why it was cut off."""
    try:
        while select([link.socket], [], [], TIMEOUT_S)[0]:
            link.receive()
    except ConnectionLost as error:
        return str(error)
    finally:
        link.close()
    return "not cut off"


def drain(link: WebSocketConnection, until: DownItem, seconds: float = TIMEOUT_S) -> list[DownItem]:
    """All that comes up to this item; nothing if it does not come in time."""
    items: list[DownItem] = []
    deadline = monotonic() + seconds
    while select([link.socket], [], [], max(0.0, deadline - monotonic()))[0]:
        items += [item for frame in link.receive() for item in decode_down(frame)]
        if until in items:
            return items
    return []
