"""The coordinator that a command asks. One that is just starting on this machine is waited for."""

import sys
import time
from collections.abc import Callable
from math import inf
from socket import create_connection

from countless.client.api import ApiClient
from countless.client.transport.endpoint import Endpoint, is_loopback, no_coordinator
from countless.clock import Clock, steady_clock
from countless.errors import InvalidParameter

WAIT_S = 5.0
NOTICE_S = 1.0
RETRY_S = 0.05


def coordinator(url: str, token: str | None) -> ApiClient:
    api = ApiClient(url, token)
    wait_for_start(url)
    return api


def wait_for_start(
    url: str,
    at_most: float = inf,
    clock: Clock = steady_clock,
    sleep: Callable[[float], object] = time.sleep,
) -> str | None:
    """Wait while the port of this machine refuses connections. If it still does after `at_most` seconds, or WAIT_S,
    return why there is no coordinator. Don't wait for other machines, nor after other errors.
    """
    try:
        endpoint = Endpoint.parse(url)
    except InvalidParameter:  # nats://...
        return None
    began, noticed = clock(), False
    while is_loopback(endpoint.host):
        try:
            create_connection((endpoint.host, endpoint.port), NOTICE_S).close()
        except ConnectionRefusedError as error:
            waited = clock() - began
            if waited >= min(at_most, WAIT_S):
                return no_coordinator(endpoint, endpoint.base, error)
            if waited >= NOTICE_S and not noticed:
                print(f"countless: waiting for a coordinator at {endpoint.base}", file=sys.stderr, flush=True)
                noticed = True
            sleep(RETRY_S)
        except OSError:
            break
        else:
            break
    return None
