"""Requests forwarded through a real broker."""

from collections.abc import AsyncIterator, Callable

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from countless.server.cluster.forwarding import (
    ForwardedAuth,
    ForwardedRequest,
    ForwardHandler,
    OwnerUnreachable,
    forward,
    respond_as_owner,
)
from countless.server.http.access.auth import Grant
from countless.wire.nats_subjects import forward_subject

pytestmark = pytest.mark.slow

LARGE = "ä" * 700_000  # more than one message of the broker can hold
OWNED, UNLEASED, LOSSY = 2, 3, 4


async def echo(request: Request) -> Response:
    grant = ForwardedAuth().authenticate(request)
    body = (await request.body()).decode()
    text = LARGE if body == "large" else f"{request.method} {request.url.query} {body} {grant}"
    return PlainTextResponse(text, 201, {"x-header": request.headers["accept"]})


ROUTES = [Route("/{path:path}", echo, methods=["GET", "POST"])]


class LossyClient:
    """Drops the second message of every reply."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sent = 0

    async def publish(self, subject: str, payload: bytes) -> None:
        self._sent += 1
        if self._sent != 2:
            await self._client.publish(subject, payload)


@pytest.fixture
async def shards(client: Client) -> AsyncIterator[None]:
    app = Starlette(routes=ROUTES)
    callbacks: dict[int, Callable[[Msg], object]] = {
        OWNED: ForwardHandler(client, app, lambda: True).on_message,
        UNLEASED: ForwardHandler(client, app, lambda: False).on_message,
        LOSSY: ForwardHandler(LossyClient(client), app, lambda: True).on_message,  # type: ignore[arg-type]
    }
    subscriptions = [
        await client.subscribe(forward_subject(shard), cb=callback)  # type: ignore[arg-type]
        for shard, callback in callbacks.items()
    ]
    yield
    for subscription in subscriptions:
        await subscription.unsubscribe()


def post(body: bytes) -> ForwardedRequest:
    return ForwardedRequest("POST", "/api", b"a=1", [(b"accept", b"text/*")], body, ["read"], "web")


@pytest.mark.usefixtures("shards")
async def test_owner_sees_the_request_and_what_the_caller_may_do(client: Client) -> None:
    response = await forward(client, OWNED, post(b"body"))
    assert bytes(response.body).decode() == f"POST a=1 body {Grant(frozenset({'read'}), 'web')}"
    assert (response.status_code, response.headers["x-header"]) == (201, "text/*")


@pytest.mark.usefixtures("shards")
async def test_response_larger_than_a_message_arrives_complete(client: Client) -> None:
    response = await forward(client, OWNED, post(b"large"))
    assert bytes(response.body).decode() == LARGE


@pytest.mark.usefixtures("shards")
async def test_response_with_a_lost_chunk_is_not_delivered(client: Client) -> None:
    with pytest.raises(OwnerUnreachable, match="chunk"):
        await forward(client, LOSSY, post(b"large"))


@pytest.mark.usefixtures("shards")
async def test_owner_without_a_lease_does_not_answer(client: Client) -> None:
    with pytest.raises(OwnerUnreachable, match="lease"):
        await forward(client, UNLEASED, post(b""))


async def test_response_is_withheld_if_the_lease_expires_meanwhile() -> None:
    leases = [True, False]
    with pytest.raises(OwnerUnreachable, match="lease"):
        await respond_as_owner(Starlette(routes=ROUTES), post(b""), lambda: leases.pop(0))
    assert leases == []


async def test_shard_without_an_owner_is_unreachable_at_once(client: Client) -> None:
    with pytest.raises(OwnerUnreachable, match="no coordinator"):
        await forward(client, OWNED, post(b""))
