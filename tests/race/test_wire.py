"""Messages and bytes as the kernel counts them."""

import socket

from race.wire import traffic_to


def test_traffic_to_a_port_counts_packets_and_bytes_in_both_directions() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert traffic_to(port) == (0, 0)
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = listener.accept()
            with server:
                for _ in range(3):
                    client.sendall(b"four")
                    assert server.recv(4) == b"four"
                server.sendall(b"reply")
                assert client.recv(5) == b"reply"
                assert traffic_to(port) == (4, 17)
                assert traffic_to(port) == (4, 17)
        assert traffic_to(port) == (0, 0)
