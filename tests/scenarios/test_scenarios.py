"""The scenario files: commands, `----`, the full output. `pytest tests/scenarios --rewrite` writes the output anew.

Read them in order: they are the documentation of the protocol. Commands are explained in `tests/support/scenario.py`.
"""

from itertools import takewhile
from pathlib import Path

import pytest

from support.scenario import Scenario

FILES = sorted(Path(__file__).parent.glob("*.txt"))
RULE = "----"


def replay(text: str) -> str:
    """The file with the output that its commands have today; comments and blank lines stay."""
    scenario, written = Scenario(), []
    for block in text.strip().split("\n\n"):
        head = list(takewhile(lambda line: line != RULE, block.splitlines()))
        commands = [line for line in head if not line.startswith("#")]
        if commands:
            head += [RULE, scenario.run(commands)]
        written.append("\n".join(head))
    return "\n\n".join(written) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite: bool) -> None:
    text = path.read_text()
    today = replay(text)
    if rewrite:
        path.write_text(today)
    else:
        assert text == today


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 9
