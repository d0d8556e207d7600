"""The client of the official library, for a coordinator that receives what hostile sites publish.

The broker lets a site publish to subjects that begin with its name, and a subject may end in any bytes but space, tab
and line end. The library

- takes a form feed in a subject for the end of it, and what follows for the number of the subscription: a site could
  send whatever it wanted as a request of another coordinator, or as an answer of the broker;
- stops to read, without an error and without a new connection, at a subject or header that it cannot decode;
- when a node of the broker hangs, waits until everything is sent to it before it connects to another;
- takes what uvloop raises for a closed connection, a RuntimeError, for the end of the loop: it stops to send, and what
  is published fails with this error.

This is the only file that replaces names of the library (`pins.py`).
"""

import asyncio
import logging
import re
from typing import Any

from countless.pins import require_tested

require_tested("nats-py")
from nats.aio.client import Client  # noqa: E402
from nats.aio.transport import TcpTransport  # noqa: E402
from nats.protocol import parser  # noqa: E402

log = logging.getLogger("countless.nats")

CLOSE_TIMEOUT_S = 1.0

_STRICT = {
    "MSG_RE": rb"\AMSG[ \t]+([^ \t\r\n]+)[ \t]+([^ \t\r\n]+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)\r\n",
    "HMSG_RE": rb"\AHMSG[ \t]+([^ \t\r\n]+)[ \t]+([^ \t\r\n]+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)[ \t]+(\d+)\r\n",
}
for _name, _pattern in _STRICT.items():
    getattr(parser, _name)
    setattr(parser, _name, re.compile(_pattern))
_process_msg = Client._process_msg
_wait_closed: Any = TcpTransport.wait_closed
_writelines: Any = TcpTransport.writelines


class BrokerClient(Client):
    async def _process_msg(self, *message: Any, **fields: Any) -> None:
        try:
            await _process_msg(self, *message, **fields)
        except Exception as error:
            log.info("message of the broker ignored: %r", error)


async def _wait_closed_or_abort(transport: Any) -> None:
    """A node that hangs never takes the rest. The library reports the error, and connects again."""
    try:
        await asyncio.wait_for(_wait_closed(transport), CLOSE_TIMEOUT_S)
    except TimeoutError:
        transport._io_writer.transport.abort()
        raise ConnectionError("the node takes no more data") from None


def _writelines_or_lost(transport: Any, lines: Any) -> None:
    """The library reports the error, and connects again."""
    try:
        _writelines(transport, lines)
    except RuntimeError as error:
        raise ConnectionError(str(error)) from None


TcpTransport.wait_closed = _wait_closed_or_abort  # type: ignore[method-assign]
TcpTransport.writelines = _writelines_or_lost  # type: ignore[method-assign]
