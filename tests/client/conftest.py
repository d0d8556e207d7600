"""Fixtures that several tests of the core share."""

import pytest

from countless.client.durable import record as cells


@pytest.fixture(params=["plain", "kept", "guarded"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A meter, one that writes down what it counts, and the same on an interpreter without a GIL."""
    monkeypatch.setattr(cells, "GIL", request.param != "guarded")
    return str(request.param)
