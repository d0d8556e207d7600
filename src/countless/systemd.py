"""Messages to systemd about a coordinator or an agent: it is ready, its loop runs, it stops. `man sd_notify`."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger("countless.systemd")


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send one message to the socket in `NOTIFY_SOCKET`; False if there is none, or it does not take it."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # a socket in the abstract namespace, which containers get
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)  # the event loop must not wait for it
            channel.sendto(state.encode(), address)
    except OSError as error:
        log.warning("systemd not notified: error=%s", error)
        return False
    return True


def watchdog_interval_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Half of what the unit allows (`WatchdogSec`); None: no watchdog is wanted of this process.

    >>> watchdog_interval_s({"WATCHDOG_USEC": "30000000"}), watchdog_interval_s({})
    (15.0, None)
    """
    wanted, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
    if not wanted.isdecimal() or int(wanted) == 0 or (process is not None and process != str(os.getpid())):
        return None
    return int(wanted) / 2e6


async def keep_watchdog_quiet() -> None:
    """From the event loop, so that a loop that hangs is restarted. Returns at once if there is no watchdog."""
    interval_s = watchdog_interval_s()
    while interval_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)
