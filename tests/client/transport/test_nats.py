"""The NATS transport without a broker: what is refused, and when a node is given up."""

from typing import Any

import pytest

import countless
from countless.client.transport.base import ConnectionLost
from countless.client.transport.nats_transport import NatsTransport
from countless.errors import InvalidParameter
from countless.wire.nats_url import Broker

URL = "nats://me:secret@127.0.0.1:9"


def test_watch_with_a_broker_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"url = 'nats://127\.0\.0\.1:9'.*such as http://"):
        countless.connect(URL).watch("hits", over=1)


class MuteNode:
    """A node that accepts connections and never sends anything."""

    discovered: tuple[()] = ()
    is_shut_down = False

    def __init__(self, *_: object) -> None:
        self.subscriptions = 0

    def subscribe(self, subject: str) -> int:
        self.subscriptions += 1
        return self.subscriptions

    def publish(self, *_: object) -> None:
        pass

    def receive(self) -> list[Any]:
        return []

    def shutdown(self) -> None:
        self.is_shut_down = True


def test_node_that_leaves_a_hello_unanswered_is_given_up_and_an_idle_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("countless.client.transport.nats_transport.NatsSocket", MuteNode)
    transport = NatsTransport(Broker.parse(URL), "here", lambda: clock[0])
    transport.open_stream(0)(b"hello")
    transport.receive()
    clock[0] = 1000.0  # the connection was idle
    transport.open_stream(1)(b"hello")
    clock[0] = 1010.0  # the hello has timed out
    with pytest.raises(ConnectionLost, match="the broker does not answer"):
        transport.open_stream(1)
