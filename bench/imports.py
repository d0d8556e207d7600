"""Processor time of `import countless`, and of the first use of what a program imports it for."""

import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from bench import figures
from tools.tables import Table

RUNS = 15
STATEMENTS = {
    "`import countless`": "import countless",
    "and `countless.connect`": "import countless; countless.connect",
    "and `countless.Tracker`, which plans for itself": "import countless; countless.Tracker",
}
_TIMED = "from time import process_time; start = process_time(); {}; print(process_time() - start)"


def milliseconds(statement: str) -> float:
    """Median over new interpreters; the files are compiled."""
    command = [sys.executable, "-c", _TIMED.format(statement)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(RUNS)]  # noqa: S603
    return 1000 * median(float(run.stdout) for run in runs)


def main() -> Iterator[Table]:
    measured = {name: milliseconds(statement) for name, statement in STATEMENTS.items()}
    figures.add("ms of processor time", measured)
    rows = [(name, f"{time:.0f} ms") for name, time in measured.items()]
    yield Table("import", ("in a new interpreter", "processor time"), rows)
