"""Fixtures that several tests of the client share."""

import pytest

from countless.client.durable import record


@pytest.fixture(params=["plain", "durable", "locked"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A local counter in memory, one in a file, and one in a file on an interpreter without a GIL."""
    monkeypatch.setattr(record, "GIL", request.param != "locked")
    return str(request.param)
