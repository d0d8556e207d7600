"""The examples of docs/reference/python.md run, and every public call has one."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import countless
import countless.privacy
from countless.client.client import Client
from support.commands import run_command
from support.service import Server
from tools.privacy_api import EXAMPLES as PRIVACY_EXAMPLES
from tools.python_api import EXAMPLES, HEAD, PUBLIC, calls, example, title


@pytest.mark.slow
def test_examples_print_what_they_show(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        for line in re.findall(r"^ {4}countless (.*)$", HEAD, re.MULTILINE):
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
    shown = (inspect.getdoc(thing) or "") + example(title(thing))
    assert ">>>" in shown
    if title(thing) == "ClientBudget":
        shown += example("Spendable")
    for name in calls(thing):
        assert re.search(rf"\b{name}\b", shown), f"{title(thing)}.{name}"


def test_objects_of_a_client_show_nothing_but_the_documented_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    with countless.connect(site="web") as client:
        budget = client.budget("tokens")
        for thing in (client, client.counter("a"), client.distribution("b"), budget, client.together(budget)):
            documented = {name for kind in type(thing).__mro__ if kind in PUBLIC for name in calls(kind)}
            shown = {name for name in dir(thing) if not name.startswith("_")}
            assert shown - documented <= {"name", "overflow_count"}, thing


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
