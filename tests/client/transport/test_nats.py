"""The client of a broker, without one: what is refused, and when a node is given up."""

from pathlib import Path
from typing import Any

import pytest

import countless
from countless.client.transport.nats_transport import NatsCarrier
from countless.client.transport.websocket import ConnectionLost
from countless.errors import InvalidParameter
from countless.wire.nats_url import Broker

URL = "nats://me:secret@127.0.0.1:9"


def test_a_state_dir_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameter, match=r"state_dir = .*left out with the broker nats://127\.0\.0\.1:9"):
        countless.connect(URL, state_dir=tmp_path / "state")
    monkeypatch.setenv("COUNTLESS_CLIENT_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(InvalidParameter, match="belongs to one coordinator"):
        countless.connect(URL)
    assert list(tmp_path.iterdir()) == []


def test_a_total_is_watched_at_a_coordinator_and_not_at_a_broker() -> None:
    with pytest.raises(InvalidParameter, match=r"url = 'nats://127\.0\.0\.1:9'.*such as http://"):
        countless.connect(URL).watch("hits", over=1)


class Node:
    """A node to which one can connect, and that never says a word unless it is made to."""

    discovered: tuple[()] = ()
    shut_down = False

    def __init__(self, *_: object) -> None:
        self.listening = 0

    def listen(self, subject: str) -> int:
        self.listening += 1
        return self.listening

    def say(self, *_: object) -> None:
        pass

    def receive(self) -> list[Any]:
        return []

    def shut(self) -> None:
        self.shut_down = True


def test_a_node_is_given_up_when_it_does_not_answer_and_not_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("countless.client.transport.nats_transport.monotonic", lambda: clock[0])
    monkeypatch.setattr("countless.client.transport.nats_transport.NatsSocket", Node)
    carrier = NatsCarrier(Broker.parse(URL), "here")
    carrier.open(0)(b"hello")
    carrier.receive()
    clock[0] = 1000.0  # nobody had anything to say
    carrier.open(1)(b"hello")
    clock[0] = 1010.0  # a conversation has lost its patience
    with pytest.raises(ConnectionLost, match="the broker has fallen silent"):
        carrier.open(1)
