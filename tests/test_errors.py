"""Exceptions reach another process whole: a worker of a pool that raises one must not break the pool."""

import pickle
from copy import copy

import pytest

from countless import errors
from countless.errors import (
    AboveLimit,
    BudgetRefused,
    CounterRefused,
    CountlessError,
    HoldExpired,
    InvalidParameter,
    InvariantBroken,
    LimitExceeded,
    LimitReached,
    MissingExtra,
    NoWindows,
    PlanError,
    ProtocolError,
    ServiceError,
    Starved,
    UnknownBudget,
    UnknownName,
    Unreachable,
)

RAISED = (
    CountlessError("failed"),
    InvalidParameter("alpha", 2, "below 1"),
    InvalidParameter("tz", "Mars", message="no such time zone"),
    UnknownName("scheme", "sampeld", ["sampled", "exact"]),
    AboveLimit("api", 7, 5),
    ProtocolError("bad frame", "site 3"),
    LimitReached("too many labels"),
    CounterRefused({"hits": "no more counters", "errors": "no more counters"}),
    NoWindows('clicks{route="/"}', "clicks"),
    ServiceError("not found", status=404),
    PlanError("no plan"),
    BudgetRefused("refused"),
    LimitExceeded("api", 3, retry_after=1.5),
    Starved("no answer"),
    Unreachable("no connection"),
    UnknownBudget("api", "no such budget"),
    HoldExpired("api", 7),
    InvariantBroken("count fell"),
    MissingExtra("plotly", "figures", "countless-lab"),
)


def test_every_exception_of_the_module_is_tried() -> None:
    public = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, CountlessError)}
    assert {type(each) for each in RAISED} == public


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_exception_survives_pickling_and_copying(error: CountlessError) -> None:
    error.add_note("in worker 3")
    for other in (pickle.loads(pickle.dumps(error)), copy(error)):  # noqa: S301 - our own bytes
        assert type(other) is type(error)
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
        assert getattr(other, "msg", None) == getattr(error, "msg", None)  # that of ImportError is no attribute
