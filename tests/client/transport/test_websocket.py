"""Why a connection could not be opened: the reason tells a lost connection from a server that is none of ours."""

import socket
from threading import Thread

import pytest

from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"", "connection lost before the coordinator answered"),
        (b"HTTP/1.1 101 Switch", "connection lost before the coordinator answered"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not a coordinator of Countless"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "is there a coordinator behind it?"),
    ],
)
def test_reason_names_what_happened_while_the_connection_was_opened(response: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(response)

        thread = Thread(target=respond)
        thread.start()
        with pytest.raises(ConnectionLost, match=reason.replace("?", r"\?")):
            WebSocketConnection(Endpoint.parse(f"http://127.0.0.1:{listener.getsockname()[1]}"), None)
        thread.join()
