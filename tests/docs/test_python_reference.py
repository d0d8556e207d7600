"""The examples of docs/reference/python.md run, and every public call has one."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import countless
from countless.client.client import Client
from support.commands import run_command
from support.service import Server
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


def test_every_name_of_the_package_has_a_section() -> None:
    assert set(countless.__all__) - {"__version__"} <= {title(thing) for thing in PUBLIC}
