"""The same sections in another checkout, by turns with this one: a ratio that is measured so says what a change costs.

Each checkout runs its own `bench` package, which must have `figures.py`, with the libraries and the entry points of
this interpreter: so it must have the lab as a distribution of its own.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.figures import Figures
from tools.tables import ROOT

_SOURCES = ("src", "lab/src", ".")


def compare(sections: list[str], revision: str, turns: int) -> None:
    with TemporaryDirectory() as directory:
        other = check_out(revision, Path(directory))
        for section in sections:
            print(f"\n== {section}", flush=True)
            runs: list[tuple[Figures, Figures]] = []
            for turn in range(turns):
                found = {tree: measure(tree, section) for tree in ((other, ROOT) if turn % 2 else (ROOT, other))}
                runs.append((found[other], found[ROOT]))
                print(f"turn {turn + 1} of {turns}", flush=True)
            print(comparison(revision, runs), flush=True)


def check_out(revision: str, directory: Path) -> Path:
    archive, tree = directory / "tree.tar", directory / "tree"
    with archive.open("wb") as file:
        subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=file, check=True)  # noqa: S603, S607
    with tarfile.open(archive) as files:
        files.extractall(tree, filter="data")
    return tree


def measure(tree: Path, section: str) -> Figures:
    """One run, with the sources of that tree and the libraries of this interpreter."""
    sources = os.pathsep.join(str(tree / source) for source in _SOURCES)
    with TemporaryDirectory() as directory:
        file = Path(directory) / "figures.json"
        command = [sys.executable, "-m", "bench", section, "--figures", str(file)]
        subprocess.run(  # noqa: S603
            command, cwd=tree, env={**os.environ, "PYTHONPATH": sources}, stdout=subprocess.DEVNULL, check=True
        )
        return json.loads(file.read_text())  # type: ignore[no-any-return]


def comparison(revision: str, runs: list[tuple[Figures, Figures]]) -> str:
    """Medians and their ratio, for every figure that both have."""
    lines = [f"{f'median of {len(runs)}':60} {revision[:12]:>12} {'here':>12}  ratio"]
    for name in runs[0][1]:
        if name in runs[0][0]:
            there, here = (median(run[side][name] for run in runs) for side in (0, 1))
            lines.append(f"{name:60} {there:12,.2f} {here:12,.2f} {here / there:6.2f}")
    return "\n".join(lines)
