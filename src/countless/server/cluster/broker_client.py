"""The client of the official library, for a coordinator that receives what hostile sites publish.

The broker lets a site publish to subjects that begin with its name, and a subject may end in any bytes but space, tab
and line end. The library

- takes a form feed in a subject for the end of it, and what follows for the number of the subscription: a site could
  send whatever it wanted as a request of another coordinator, or as an answer of the broker;
- stops to read, without an error and without a new connection, at a subject or header that it cannot decode.

It also stops to read, until it finds the connection stale, when the answer to a `flush` arrives that was cancelled.
"""

import asyncio
import logging
import re
from typing import Any

from nats.aio.client import Client
from nats.protocol import parser

log = logging.getLogger("countless.nats")

_STRICT = {
    "MSG_RE": rb"\AMSG[ \t]+([^ \t\r\n]+)[ \t]+([^ \t\r\n]+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)\r\n",
    "HMSG_RE": rb"\AHMSG[ \t]+([^ \t\r\n]+)[ \t]+([^ \t\r\n]+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)[ \t]+(\d+)\r\n",
}
for _name, _pattern in _STRICT.items():
    getattr(parser, _name)  # a later version may have another parser, which has to be looked at: fail at the import
    setattr(parser, _name, re.compile(_pattern))
_process_msg, _process_pong = Client._process_msg, Client._process_pong  # likewise


class BrokerClient(Client):
    async def _process_msg(self, *message: Any, **fields: Any) -> None:
        try:
            await _process_msg(self, *message, **fields)
        except Exception as error:
            log.info("message of the broker ignored: %r", error)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # of a flush that was cancelled or has timed out
            self._pongs[0] = asyncio.Future()
        await _process_pong(self)
