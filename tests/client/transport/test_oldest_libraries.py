"""The client with the oldest versions of its libraries that it accepts; all other tests have the newest ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.service import TIMEOUT_S, Server, environment

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements/oldest.txt"
# Two lives of the coordinator: between them the connection is lost, and opened again.
PROGRAM = """
import sys
import msgspec, websockets
import countless

print(websockets.__version__, msgspec.__version__)
with countless.connect(sys.argv[1]) as client:
    hits, pages = client.counter("hits"), client.counter("pages", family=True)
    budget = client.budget("jobs")
    for word in ("counting", "counted"):
        hits.add(1000)
        pages.labels(page="/a").add(5)
        assert budget.take(2, wait=60)
        assert client.flush(60)
        print(word, flush=True)
        sys.stdin.readline()
"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with these versions, to be first on the path."""
    folder = tmp_path_factory.mktemp("oldest")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--no-deps", "--require-hashes", "--target", str(folder), "-r", str(LOCK)]
    subprocess.run(command, check=True, capture_output=True)
    return str(folder)


def test_program_counts_and_spends_and_connects_again(oldest: str, tmp_path: Path) -> None:
    with Server(tmp_path / "state") as server:
        server.reader.request("POST", "/api/v1/budgets", {"name": "jobs", "limit": 10})
        path = ":".join([oldest, *(each for each in sys.path if each)])
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(PYTHONPATH=path),
        )
        with program:
            assert program.stdin is not None
            assert program.stdout is not None
            locked = dict(line.split()[0].split("==") for line in LOCK.read_text().splitlines() if "==" in line)
            assert program.stdout.readline().split() == [locked["websockets"], locked["msgspec"]]
            assert program.stdout.readline() == "counting\n"
            server.kill()
            server.start()
            print(file=program.stdin, flush=True)
            assert program.stdout.readline() == "counted\n"
            program.communicate("\n", timeout=TIMEOUT_S)
        assert program.returncode == 0
        assert server.answer("hits")["estimate"] == 2000  # exact, once the program has left


def test_transport_and_wire_pass_their_tests(oldest: str) -> None:
    """In the process of another pytest, because the libraries are imported here already."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["tests/client/transport/test_websocket.py", "tests/client/session", "tests/wire"]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment(PYTHONPATH=oldest)
    )
    assert result.returncode == 0, result.stdout
