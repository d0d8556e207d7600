"""The address of a caller: of its connection, or from a proxy on this machine, and never any other text."""

import pytest
from starlette.types import Receive, Scope, Send

from countless.server.http.access.middleware import ForwardedAddress


async def client_of(peer: str | None, *values: str) -> str | None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in values]
    scope = {"type": "websocket", "client": None if peer is None else (peer, 5000), "headers": headers}
    await ForwardedAddress(app)(scope, None, None)  # type: ignore[arg-type]
    return seen[0]["client"][0] if seen[0]["client"] else None


@pytest.mark.parametrize(
    ("peer", "values", "expected"),
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("::1", ["2001:DB8::1"], "2001:db8::1"),
        ("127.0.0.1", ["invented, 192.0.2.1"], "192.0.2.1"),  # proxies append: only the last is theirs
        ("127.0.0.1", ["192.0.2.9", "192.0.2.1"], "192.0.2.1"),
        ("192.0.2.7", ["192.0.2.1"], "192.0.2.7"),  # not a proxy on this machine
        (None, ["192.0.2.1"], None),
        ("testclient", ["192.0.2.1"], "testclient"),
    ],
)
async def test_address_comes_from_a_proxy_on_this_machine_only(
    peer: str | None, values: list[str], expected: str | None
) -> None:
    assert await client_of(peer, *values) == expected


@pytest.mark.parametrize("text", ["", "unknown", '"}', "fe80::1%evil", "192.0.2.1, evil", "1", "é"])
async def test_text_that_is_no_address_is_not_taken(text: str) -> None:
    assert await client_of("127.0.0.1", text) == "127.0.0.1"
