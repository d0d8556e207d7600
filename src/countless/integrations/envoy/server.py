"""The gRPC server that Envoy asks."""

from typing import Any

import grpc

from countless.integrations.envoy.decisions import Decisions
from countless.integrations.envoy.messages import SERVICE, RateLimitRequest, RateLimitResponse

MAX_REQUEST_BYTES = 1 << 18
MAX_WAITING = 10_000  # requests
GRACE_S = 1.0
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # two agents must not share a port
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
)


class EnvoyServer:
    """Answers on an address. For one event loop."""

    def __init__(self, decisions: Decisions, listen: str) -> None:
        self._decisions = decisions
        self._listen = listen
        self._server: Any = None

    async def start(self) -> int:
        """Return the port; 1 for a unix socket. Raise OSError if the address cannot be bound."""
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_WAITING)
        handler = grpc.unary_unary_rpc_method_handler(
            self._answer, RateLimitRequest.FromString, RateLimitResponse.SerializeToString
        )
        handlers = grpc.method_handlers_generic_handler(SERVICE, {"ShouldRateLimit": handler})
        self._server.add_generic_rpc_handlers((handlers,))
        try:
            port: int = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Answer what has been asked, and nothing more."""
        await self._server.stop(GRACE_S)

    async def _answer(self, request: Any, context: Any) -> Any:
        return await self._decisions.answer(request)
