"""What the README shows is what happens."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import countless
from countless.schemes.registry import SchemeName
from support.service import Server, environment, until
from support.uvicorn_app import UvicornApp

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """The indented command lines, without comments."""
    return [line.split("  #")[0].strip() for line in re.findall(r"^ {4}(\S.*)$", README, re.MULTILINE)]


def run(command: str, **settings: str) -> str:
    words = [sys.executable, "-m", "countless.cli.main", *shlex.split(command)[1:]]
    made = subprocess.run(words, capture_output=True, text=True, check=True, env=environment(**settings))
    return made.stdout.strip()


@pytest.mark.slow
def test_first_screen_limits_three_replicas_together(tmp_path: Path) -> None:
    """Its program and its commands; the rule is for a month, because the test may run over the end of a minute."""
    (tmp_path / "main.py").write_text(python_blocks()[0])
    (rule,) = [command for command in commands() if command.startswith("countless budget create 'keys/*'")]
    with Server(tmp_path) as server, ExitStack() as stack:
        run(rule.replace("minute", "month"), COUNTLESS_URL=server.url)
        replicas = [
            stack.enter_context(UvicornApp("main:app", tmp_path, tmp_path / f"{name}.log", COUNTLESS_URL=server.url))
            for name in range(3)
        ]

        def status(replica: UvicornApp) -> int:
            answer: int = until(lambda: (s := replica.request("GET", "/", x_api_key="me").status) != 503 and s)
            return answer

        statuses = Counter(status(replica) for _ in range(60) for replica in replicas)
    assert set(statuses) == {200, 429}
    assert 99 <= statuses[200] <= 100


@pytest.mark.slow
def test_spending_and_counting_do_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = SimpleNamespace(usage=1_200)
    with Server(tmp_path) as server:
        monkeypatch.setenv("COUNTLESS_URL", server.url)
        for command in commands():
            if command.startswith("countless budget create 'tokens"):
                run(command)
        client = countless.connect()
        names: dict[str, Any] = {"countless": SimpleNamespace(connect=lambda: client), "call_the_model": lambda: reply}
        for block in python_blocks()[1:]:
            exec(block, names)  # noqa: S102
        assert client.close()
        assert "1,200" in run("countless budget get tokens/acme")
        ((command, shown),) = re.findall(r"^ {4}(countless get requests) +# (.*)$", README, re.MULTILINE)
        until(lambda: run(command) == shown)
        for command in commands():
            if command.startswith(("countless get requests --", "countless rate")):
                assert "requests" in run(command)


def test_no_page_installs_a_package_of_a_stranger() -> None:
    """The name is not ours yet: everything is installed from the clone. (The errors for a missing extra may name it:
    pip keeps the installed version then.)
    """
    files = (path for folder in ("docs", "design", "examples", "deploy", "lab") for path in (ROOT / folder).rglob("*"))
    texts = [path for path in files if path.is_file() and path.suffix in ("", ".md", ".ipynb")]
    pages = {path: path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *texts)}
    assert sum("pip install" in page for page in pages.values()) > 5
    assert not [path for path, page in pages.items() if re.search(r"pip install[^`\n]*[' ]countless\b", page)]


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150
    assert len(README.split()) <= 1000


PLAN_PAGE = (ROOT / "docs/guides/accuracy.md").read_text(encoding="utf-8")


def run_plan(*options: str) -> str:
    words = re.findall(r"^ {4}countless (plan --sites 1000.*)$", PLAN_PAGE, re.MULTILINE)[0]
    command = [sys.executable, "-m", "countless.cli.main", *words.split(), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment(COLUMNS="100")).stdout


@pytest.mark.slow
def test_plan_table_in_the_docs_is_what_the_command_computes() -> None:
    """The JSON output leaves out the crossovers, for which the command makes a dozen plans."""
    candidates = json.loads(run_plan("--json"))["candidates"]
    for name, plan in ((name, plan) for name, plan in candidates.items() if name in get_args(SchemeName)):
        cells = [plan["messages_per_efold"], plan["messages_first_day"], plan["messages_day_30"]]
        efold, first, later = (f"{cell:,.0f}" for cell in cells)
        assert re.search(rf"^ {name} +{efold} +{plan['ratio']:.3f} +{first} +{later} ", PLAN_PAGE, re.MULTILINE), name


@pytest.mark.soak
def test_plan_output_in_the_docs_is_what_the_command_prints() -> None:
    (shown,) = re.findall(r"```text\n(1,000 sites.*?)```", PLAN_PAGE, re.DOTALL)
    of_the_lab = (" hyz ", " blocks ")
    made = [line for line in run_plan().strip().splitlines() if not line.startswith(of_the_lab)]
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in made]


def test_readme_commands_are_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (\w+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
