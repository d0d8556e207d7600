"""The client of limits that were given none: one for the process."""

from threading import Lock

from countless.client import goodbye
from countless.client.client import Client, connect

_client: Client | None = None
_expected: list[tuple[str, str]] = []  # before it is made
_lock = Lock()


def default_client() -> Client:
    """Return the client of all limits that were given none, made from the environment when it is first needed."""
    global _client
    with _lock:
        if _client is None:
            _client = connect()
            for budget, options in _expected:
                _client.expect(budget, options)
        return _client


def expect_by_default(budget: str, options: str) -> None:
    """A limit without a client spends from this budget, or from the budgets of this rule."""
    goodbye.install()  # now: when the first request makes the client, a server may have handlers of its own
    with _lock:
        _expected.append((budget, options))
        if _client is not None:
            _client.expect(budget, options)
