from collections.abc import AsyncIterator, Iterator

import pytest
from nats.aio.client import Client

from countless.server.cluster.broker import connect
from support.nats import Node, node


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture
async def client(broker: Node) -> AsyncIterator[Client]:
    client = await connect(broker.url)
    yield client
    await client.close()
