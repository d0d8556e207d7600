"""What the README shows is what happens."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import countless
from support.service import TIMEOUT_S, Server, environment, until

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_readme_python_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = python_blocks()[0]
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - the README's own example
    tracker = names["tracker"]
    assert tracker.answer.lower <= 1_000_000 <= tracker.answer.upper  # type: ignore[attr-defined]
    assert "1,000 sites" in capsys.readouterr().out


@pytest.mark.slow
def test_readme_serve_connect_curl_and_read_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines, with the port that the system gives and Python in place of curl."""
    (program,) = re.findall(r"^python -c '(.*)'$", README, re.MULTILINE)
    ((address, fields),) = re.findall(r"^curl http://127.0.0.1:2686(\S+) +# (.*)$", README, re.MULTILINE)
    assert re.search(r"^countless serve ", README, re.MULTILINE)
    with Server(tmp_path) as server:
        command = [sys.executable, "-c", program]
        subprocess.run(command, check=True, timeout=TIMEOUT_S, env=environment(COUNTLESS_URL=server.url))
        answer = until(lambda: server.reader.request("GET", address))
        assert answer["estimate"] == 5, json.dumps(answer)
        assert set(fields.split(", ")) <= set(answer)
        monkeypatch.setenv("COUNTLESS_URL", server.url)
        exec(python_blocks()[1], {"countless": countless, "serve": lambda: print("served")})  # noqa: S102
        assert re.match(r"served\nrequests, last 5m: .*/s .* requests, last 15m: 5, exact", capsys.readouterr().out)


PLAN_PAGE = (ROOT / "docs/guides/accuracy.md").read_text(encoding="utf-8")


def run_plan(*options: str) -> str:
    words = re.findall(r"^ {4}countless (plan --sites 1000.*)$", PLAN_PAGE, re.MULTILINE)[0]
    command = [sys.executable, "-m", "countless.cli.main", *words.split(), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment(COLUMNS="100")).stdout


@pytest.mark.slow
def test_plan_table_in_the_docs_is_what_the_command_computes() -> None:
    """The JSON output leaves out the crossovers, for which the command makes a dozen plans."""
    for name, plan in json.loads(run_plan("--json"))["candidates"].items():
        cells = [plan["messages_per_efold"], plan["messages_first_day"], plan["messages_day_30"]]
        efold, first, later = (f"{cell:,.0f}" for cell in cells)
        assert re.search(rf"^ {name} +{efold} +{plan['ratio']:.3f} +{first} +{later} ", PLAN_PAGE, re.MULTILINE), name


@pytest.mark.soak
def test_plan_output_in_the_docs_is_what_the_command_prints() -> None:
    (shown,) = re.findall(r"```text\n(1,000 sites.*?)```", PLAN_PAGE, re.DOTALL)
    made = run_plan().strip()
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in made.splitlines()]


def test_readme_commands_are_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (\w+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
