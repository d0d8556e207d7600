"""The client of limits that were given none: one for the process."""

from threading import Lock

from countless.client.client import Client, connect

_client: Client | None = None
_expected: list[str] = []  # before it is made
_lock = Lock()


def default_client() -> Client:
    """Return the client of all limits that were given none, made from the environment when it is first needed."""
    global _client
    with _lock:
        if _client is None:
            _client = connect()
            for budget in _expected:
                _client.expect(budget)
        return _client


def expect_by_default(budget: str) -> None:
    """A limit without a client spends from this budget, or from the budgets of this rule."""
    with _lock:
        _expected.append(budget)
        if _client is not None:
            _client.expect(budget)
