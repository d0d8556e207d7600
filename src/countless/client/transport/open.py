"""The transport for an endpoint."""

from countless.client.transport.base import Transport
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketTransport
from countless.wire.nats_url import Broker


def open_transport(endpoint: Endpoint | Broker, token: str | None, site: str) -> Transport:
    """Nothing is connected until the first stream is opened."""
    if isinstance(endpoint, Endpoint):
        return WebSocketTransport(endpoint, token)
    from countless.client.transport.nats_transport import NatsTransport  # most programs never need it

    return NatsTransport(endpoint, site)
