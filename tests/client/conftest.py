"""Fixtures that several tests of the client share."""

import sys
from collections.abc import Iterator

import pytest

from countless.client.budgets import local_budget
from countless.client.durable import record


@pytest.fixture(params=["plain", "durable", "locked"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A counter or budget in memory, one in a file, and one in a file on an interpreter without a GIL."""
    for module in (record, local_budget):
        monkeypatch.setattr(module, "GIL", request.param != "locked")
    return str(request.param)


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Make the interpreter switch threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)
