"""Chooses how site frames get from a socket to the application: the fast path where it was tested, else uvicorn's own.

The fast path (`fast_websocket.py`) builds on a class that uvicorn does not document. It is used with the versions it
was tested with, and with no others. Where it is used, the application finds `RECEIVER` in the extensions of its ASGI
scope (`receiver.py`); where it is not, frames come from `receive()` as usual.

design/decisions/libraries.md has the processor time that each part of it saves.
"""

import asyncio
import logging
from importlib.metadata import version

log = logging.getLogger("countless.fastpath")

TESTED_VERSIONS = {"uvicorn": "0.54", "websockets": "17.4"}
ORDINARY = "auto"  # uvicorn's choice


def websocket_protocol() -> type[asyncio.Protocol] | str:
    """For `uvicorn.Config(ws=...)`."""
    installed = {name: ".".join(version(name).split(".")[:2]) for name in TESTED_VERSIONS}
    if installed != TESTED_VERSIONS:
        log.warning("fast WebSocket path off: tested=%s installed=%s", TESTED_VERSIONS, installed)
        return ORDINARY
    from countless.server.http.sockets.fast_websocket import (
        FastWebSocketProtocol,  # with other versions it may not import
    )

    return FastWebSocketProtocol
