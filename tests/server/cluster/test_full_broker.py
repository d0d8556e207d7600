"""The JetStream limit of a real broker is reached while a site counts."""

from pathlib import Path

import pytest

import countless
from countless.errors import ServiceError
from support.nats import Coordinator, Node, free_ports
from support.service import TIMEOUT_S, until

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def test_full_broker_is_reported_and_everything_is_delivered_once_it_has_room(tmp_path: Path) -> None:
    limit = f'jetstream {{ store_dir: "{tmp_path / "jetstream"}", max_file: 300KB }}'
    with (
        Node(tmp_path / "broker", free_ports(1)[0], limit) as broker,
        Coordinator(tmp_path / "coordinator", broker.url) as server,
        countless.connect(broker.url, site="a") as client,
    ):
        client.counter("hits").add(5)
        assert client.flush(TIMEOUT_S)
        names = (f"{'x' * 200}{number}" for number in range(10_000))

        def refused() -> bool:
            for _ in range(50):
                client.counter(next(names)).add()
            client.flush(0.2)
            try:
                server.answer("hits")
            except ServiceError as error:
                return "cannot use its broker at present" in str(error)
            return False

        until(refused, "a coordinator without a lease")
        client.counter("hits").add(2)
        broker.kill()
        config = tmp_path / "broker" / "nats.conf"
        config.write_text(config.read_text("utf-8").replace("300KB", "300MB"), "utf-8")
        broker.start()
        assert client.flush(TIMEOUT_S)
        until(lambda: server.answer("hits")["estimate"] == 7, "everything counted once")
