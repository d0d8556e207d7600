"""The examples of docs/reference/python run, and every public call has one."""

import doctest
import inspect
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

import countless
import countless.privacy
from countless.client.answers import (
    Quantiles,
    QuantileValue,
    Rate,
    RollingCount,
    SeriesCount,
    TopCounts,
    TotalCount,
    WindowCount,
)
from countless.client.client import Client
from countless.core.budget.rule import BudgetRule
from countless.errors import (
    AboveLimit,
    BudgetRefused,
    CounterRefused,
    CountlessError,
    InvalidParameter,
    LimitExceeded,
    MissingExtra,
    NoWindows,
    PlanError,
    ServiceError,
    Starved,
    UnknownBudget,
    UnknownName,
    Unreachable,
)
from support.commands import run_command
from support.service import Server
from tools.privacy_api import EXAMPLES as PRIVACY_EXAMPLES
from tools.python_api import CONSTRUCTED, LIMITS, PUBLIC, page, title
from tools.python_layout import EXAMPLES, MANY, arguments, calls, example, fields, parameters
from tools.python_names import SAME

NOW = datetime(2026, 11, 18)
RATE = Rate("a", "5m", 1.0, 1.0, 1.0, "exact", None)
PUBLIC_NAMES = {
    "Client": "aanswer answer budget close connected counter distribution expect expired_holds flush "
    "last_error quantile rate ready rolling site together top watch window",
    "Counter": "add count count_calls count_exceptions inc labels name overflow_count",
    "ClientDistribution": "count name observe",
    "ClientBudget": "aacquire acquire areserve atake left name overdraft "
    "remaining reserve resets_at retry_after rule take",
    "BudgetGroup": "aacquire acquire areserve atake reserve take",
    "Watch": "close last_error verdict wait",
    "Exceptions": "",
    "Decision": "reason retry_after",
    "Hold": "expires_in settle units",
    "Slot": "expires_in release settle units",
    "AsyncHold": "",
    "Reader": "answer quantile rate rolling top window",
    "BudgetRule": "anchor calendar kind lease limit max_names on_loss on_unreachable per rolling slack template tz",
    "QuantileValue": "estimate lower q upper",
    "Rate": "as_dict counter estimate known_since lower over state upper",
    "TotalCount": "as_dict as_of counter estimate lower per state upper",
    "WindowCount": "as_dict as_of complete counter end estimate exact "
    "first_window known_since lower open start state upper window",
    "RollingCount": "as_dict counter end estimate exact known_since lower over rate start state upper",
    "SeriesCount": "counter estimate lower state upper",
    "TopCounts": "as_dict as_of counter estimate lower series share state upper",
    "Quantiles": "as_dict as_of counter estimate lower quantiles state upper",
    "Tracker": "add_site answer messages on_change plan rate remove_site rolling site sites total window windows",
    "CountingSite": "add count inc",
    "Answer": "alpha as_dict bounds contains delta estimate floor known lower published round scheme silent sites "
    "state upper",
    "Traffic": "bytes down total up words",
    "TotalAnswer": "alpha as_dict bounds contains delta estimate lower round scheme silent sites state upper",
    "SpanCount": "complete end estimate exact known_since lost lower rate start state upper waiting",
    "SpanRate": "estimate lower upper",
    "Window": "end estimate exact lost lower period start state upper waiting",
    "Budget": "add_site held limit messages name remove_site reset resets_at set_limit site sites spent usage",
    "SpendingSite": "held reserve room spent take",
    "Usage": "leaked limit lower state upper",
    "Family": "add_site answer messages name overflow remove_site site sites state top total",
    "LabelSite": "add inc",
    "LabelCount": "contains estimate label lower upper",
    "Top": "labels overflow share state total",
    "Distribution": "add_site counts_sent messages name quantile rank remove_site site",
    "ObservingSite": "observe",
    "Quantile": "estimate lower q upper",
    "Rank": "lower upper value",
    "CountlessError": "",
    "InvalidParameter": "allowed parameter value",
    "UnknownName": "allowed hint parameter value",
    "AboveLimit": "allowed parameter value",
    "ServiceError": "is_refusal status",
    "CounterRefused": "reasons",
    "NoWindows": "",
    "BudgetRefused": "",
    "LimitExceeded": "budget retry_after units",
    "Starved": "",
    "Unreachable": "",
    "UnknownBudget": "budget",
    "PlanError": "",
    "MissingExtra": "",
}


@pytest.mark.slow
def test_examples_print_what_they_show(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        for line in re.findall(r"^ {4}countless (.*)$", LIMITS.head, re.MULTILINE):
            assert run_command(*line.split(), COUNTLESS_URL=server.url).returncode == 0
        text = EXAMPLES.read_text(encoding="utf-8").replace("http://127.0.0.1:2686", server.url)
        names: dict[str, object] = {}
        found = doctest.DocTestParser().get_doctest(text, names, EXAMPLES.name, str(EXAMPLES), 0)
        output: list[str] = []
        try:
            failed = doctest.DocTestRunner().run(found, out=output.append, clear_globs=False).failed
        finally:
            for value in list(names.values()):
                if isinstance(value, Client):
                    value.close()
    assert not failed, "".join(output)


@pytest.mark.parametrize("thing", PUBLIC, ids=title)
def test_every_public_call_has_an_example(thing: object) -> None:
    names = [title(thing), *(f"{title(thing)}.{call}" for call in calls(thing) if isinstance(thing, type))]
    shown = (inspect.getdoc(thing) or "") + "".join(map(example, names))
    assert ">>>" in shown
    for name in calls(thing):
        assert re.search(rf"\b{name}\b", shown), f"{title(thing)}.{name}"


def test_every_example_belongs_to_a_public_name() -> None:
    public = {name for thing in PUBLIC for name in (title(thing), *(f"{title(thing)}.{call}" for call in calls(thing)))}
    assert set(re.findall(r"^## (.*)$", EXAMPLES.read_text(encoding="utf-8"), re.MULTILINE)) <= public


LONG_CALLS = [
    pytest.param(call, id=f"{title(thing)}.{name}")
    for thing in PUBLIC
    for name, call in ((name, getattr(thing, name, thing)) for name in calls(thing))
    if inspect.isfunction(call) and len(parameters(call)) >= MANY
    if name not in SAME.get(title(thing), SAME["Window"]).names
]


@pytest.mark.parametrize("call", [*LONG_CALLS, *(pytest.param(kind, id=title(kind)) for kind in CONSTRUCTED)])
def test_every_parameter_of_a_long_call_has_a_meaning(call: Callable[..., object]) -> None:
    assert list(arguments(call)) == [each.name for each in parameters(call)]
    assert all(arguments(call).values())


def test_scaffolding_of_examples_is_not_shown() -> None:
    shown = page("limits")
    assert ">>> with tokens.reserve(50) as hold:" in shown
    assert not re.search(
        r"# hide|wait=20|asyncio\.run", "".join(map(page, ("client", "limits", "answers", "in-process")))
    )


def shown(thing: object) -> set[str]:
    """What an editor offers."""
    inherited = dir(tuple) if isinstance(thing, tuple) else dir(ImportError) if isinstance(thing, Exception) else ()
    return {name for name in dir(thing) if not name.startswith("_") and name not in inherited}


def objects() -> dict[str, object]:
    """One of each kind that a program can get."""
    client = countless.connect("http://127.0.0.1:9", site="web")
    counter, budget = client.counter("a"), client.budget("tokens")
    tracker, windows = countless.Tracker(sites=2), countless.Tracker(sites=2, per="hour")
    limit, family, distribution = countless.Budget(10, 2), countless.Family(2), countless.Distribution(2)
    distribution.site(0).observe(3)
    family.site(0).add("x")
    windows.site(0).add()
    things = [
        *(client, counter, client.distribution("b"), budget, client.together(budget), client.watch("a", over=1)),
        *(counter.count_exceptions(), budget.take(), budget.reserve(1), budget.acquire(), budget.areserve(1)),
        *(countless.Reader(), BudgetRule(5), QuantileValue(0.5, 1.0, 1.0, 1.0), RATE),
        TotalCount("a", 1, 1, 1, "exact", NOW),
        WindowCount("a", "now", NOW, NOW, 1, 1, 1, "exact", True, None, NOW),
        RollingCount("a", "5m", NOW, NOW, 1, 1, 1, "exact", None, RATE),
        SeriesCount("a", 1, 1, 1, "exact"),
        TopCounts("a", 0.1, 1, 1, 1, "exact", (), NOW),
        Quantiles("a", 1, 1, 1, "exact", (), NOW),
        *(tracker, tracker.site(0), tracker.answer, tracker.messages),
        *(windows.answer, windows.window(), windows.rate(), windows.windows[0]),
        *(limit, limit.site(0), limit.usage),
        *(family, family.site(0), family.answer("x"), family.top()),
        *(distribution, distribution.site(0), distribution.quantile(0.5), distribution.rank(1)),
        *(CountlessError("x"), InvalidParameter("a", 1, "b"), UnknownName("a", 1, "b"), AboveLimit("a", 1, 1)),
        *(ServiceError("x"), CounterRefused({"a": "b"}), NoWindows("a"), BudgetRefused("x"), LimitExceeded("a", 1)),
        *(Starved("x"), Unreachable("x"), UnknownBudget("a", "b"), PlanError("x"), MissingExtra("a", "b")),
    ]
    return {type(thing).__name__: thing for thing in things}


def test_objects_show_exactly_the_names_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new name is seen by every user: it is added to the list on purpose, and documented."""
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    found, windowed = objects(), countless.Tracker(sites=1, per="hour").site(0)
    assert {kind: " ".join(sorted(shown(thing))) for kind, thing in found.items()} == PUBLIC_NAMES
    assert shown(windowed) == shown(found["CountingSite"])
    for thing in found.values():
        documented = {
            name
            for kind in type(thing).__mro__
            if kind in PUBLIC or inspect.isabstract(kind)
            for name in (*calls(kind), *fields(kind))
        }
        assert shown(thing) <= documented, type(thing)


def test_every_name_of_the_package_has_a_section() -> None:
    assert set(countless.__all__) - {"__version__"} <= {title(thing) for thing in PUBLIC}


def test_examples_of_the_privacy_library_print_what_they_show() -> None:
    found = doctest.DocTestParser().get_doctest(PRIVACY_EXAMPLES.read_text("utf-8"), {}, "privacy", None, 0)
    output: list[str] = []
    assert not doctest.DocTestRunner().run(found, out=output.append).failed, "".join(output)


@pytest.mark.parametrize("name", countless.privacy.__all__)
def test_every_name_of_the_privacy_library_has_an_example(name: str) -> None:
    thing = getattr(countless.privacy, name)
    shown = (inspect.getdoc(thing) or "") + example(name, PRIVACY_EXAMPLES)
    assert ">>>" in shown
    for call in calls(thing) if isinstance(thing, type) else ():
        assert re.search(rf"\b{call}\b", shown), f"{name}.{call}"
