"""The address at which an agent answers Envoy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from countless.agent import sockets
from countless.client.client import Client
from countless.errors import InvalidParameter, MissingExtra
from countless.integrations.envoy.rules import DEFAULT_LISTEN, EnvoyRules, envoy_settings
from countless.wire.nats_url import netloc

_UNIX = "unix:"
_FORM = f"an address and a port, such as {DEFAULT_LISTEN}, or {_UNIX} and a path"


class EnvoySide:
    """Made of the section `envoy` of the agent's file. Raises InvalidParameter for what is wrong there."""

    def __init__(self, section: Mapping[str, Any], client: Client, *, allow_remote: bool) -> None:
        settings = envoy_settings(section)
        self._address = _address(settings.listen, allow_remote)
        rules = EnvoyRules(settings, client)
        try:
            from countless.integrations.envoy.decisions import Decisions
            from countless.integrations.envoy.server import EnvoyServer
        except ModuleNotFoundError as missing:
            raise MissingExtra(str(missing.name).partition(".")[0], "envoy") from None
        self.decisions = Decisions(rules)
        self._server = EnvoyServer(self.decisions, self._address)

    async def start(self) -> str:
        """Return the place for people. Raises CannotListen."""
        try:
            port = await self._server.start()
        except OSError as error:
            raise sockets.CannotListen(f"cannot listen on grpc://{self._address}: {error}") from None
        if self._address.startswith(_UNIX):
            Path(self._address.removeprefix(_UNIX)).chmod(0o666)  # as the other unix sockets
            return f"grpc+{self._address}"
        return f"grpc://{self._address.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
        await self._server.stop()


def _address(listen: str, allow_remote: bool) -> str:
    if listen.startswith(_UNIX):
        return listen
    host, colon, port = listen.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) <= sockets.MAX_PORT):
        raise InvalidParameter("envoy.listen", listen, _FORM)
    return netloc(*sockets.resolve("envoy.listen", host.strip("[]"), int(port), allow_remote)[1])
