"""Pinned libraries: what is installed is what was tested, and with another version a program does not start."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from countless.pins import TESTED
from support.service import environment

ROOT = Path(__file__).parents[1]


def test_pins_are_those_of_the_extras_and_of_the_lock_files() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {f"{name}~={version}.0" for name, version in TESTED.items()} <= {*extras["server"], *extras["nats"]}
    for name in ("dev", "docs", "server"):
        lock = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        locked = dict(re.findall(r"^(nats-py|uvicorn|websockets)==(\d+\.\d+)", lock, re.MULTILINE))
        assert locked.items() <= TESTED.items(), f"{name}.txt: look at the undocumented parts of these versions first"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("uvicorn", "serve --open --port 0"),
        ("websockets", "serve --open --port 0"),
        ("nats-py", "serve --open --port 0 --nats nats://127.0.0.1:1"),
        ("uvicorn", "agent --http-port 0 --statsd-port 0"),
    ],
)
def test_program_does_not_start_with_an_untested_version(library: str, words: str, tmp_path: Path) -> None:
    """The metadata of another version come first on the path."""
    other = tmp_path / f"{library.replace('-', '_')}-99.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 99.1\n")
    sources = [str(tmp_path), *(path for path in sys.path if path)]
    result = subprocess.run(
        [sys.executable, "-m", "countless", *words.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(PYTHONPATH=":".join(sources), COUNTLESS_STATE_DIR=str(tmp_path / "state")),
    )
    tested = TESTED[library]
    error = f"{library} 99.1 is installed, and Countless needs {tested}; run: pip install '{library}~={tested}.0'"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"countless: {error}\n")
