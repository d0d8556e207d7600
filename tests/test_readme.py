"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_six_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - the README's own example
    tracker = names["tracker"]
    assert tracker.answer.lower <= 1_000_000 <= tracker.answer.upper  # type: ignore[attr-defined]
    assert "1,000 sites" in capsys.readouterr().out


@pytest.mark.slow
def test_the_plan_it_shows_is_the_plan_that_is_made() -> None:
    (shown,) = re.findall(r"```\n(1,000 sites.*?)```", README, re.DOTALL)
    command = [
        sys.executable,
        "-m",
        "countless.cli.main",
        "plan",
        "--sites",
        "1000",
        "--alpha",
        "0.01",
        "--rate",
        "10000/s",
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "100"}).stdout
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in made.strip().splitlines()]


def test_the_two_commands_are_make_targets() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
