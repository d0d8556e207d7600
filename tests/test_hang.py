"""A test that hangs fails, and says where: a suite that hangs says nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from support.service import TIMEOUT_S, until

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
HANGING = """
import asyncio, threading, time, uvloop
from pathlib import Path

def other_thread():
    Path("thread").touch()
    time.sleep(60)

def test_thread():
    threading.Thread(target=other_thread, daemon=True).start()
    threading.Event().wait()

async def other_task():
    Path("task").touch()
    await asyncio.Event().wait()

def test_task():
    async def main():
        task = asyncio.create_task(other_task())
        while True:
            await asyncio.sleep(0)
    asyncio.run(main())

async def in_uvloop():
    Path("uvloop").touch()
    await asyncio.Event().wait()

def test_uvloop():
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(in_uvloop())

def test_next(): pass
"""
STUBBORN = """
import threading
from pathlib import Path

def test_stubborn():
    Path("stubborn").touch()
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass
"""


def run(directory: Path, program: str, places: Iterable[str], *options: str) -> tuple[int | None, str, str]:
    """Run these tests. What `--hang-s` does when the time is over is done as soon as a test has reached its place."""
    file = directory / "test_hanging.py"
    file.write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.hang", *options, str(file)]
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    process = subprocess.Popen(
        command, cwd=directory, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for place in places:
        until(partial(_has_reached, process, directory / place), place)
        process.send_signal(signal.SIGALRM)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, stdout, stderr


def _has_reached(process: "subprocess.Popen[str]", place: Path) -> bool:
    return place.exists() or process.poll() is not None


def test_hanging_test_fails_with_the_stacks_of_all_threads_and_tasks_and_the_next_one_runs(tmp_path: Path) -> None:
    status, stdout, stderr = run(tmp_path, HANGING, ("thread", "task", "uvloop"))
    assert status == 1, stderr
    assert "3 failed, 1 passed" in stdout
    thread, task = stdout.split("_ test_uvloop _")[0].split("_ test_task _")
    for found, places in ((thread, ("other_thread", "test_thread")), (task, ("other_task", "main"))):
        assert "Hang: not done after 300 s" in found
        assert all(f"in {place}\n" in found for place in places)


def test_process_ends_if_the_hanging_test_catches_everything(tmp_path: Path) -> None:
    ini = "-o", "faulthandler_timeout=4", "-o", "faulthandler_exit_on_timeout=true"
    status, _, stderr = run(tmp_path, STUBBORN, ("stubborn",), *ini)
    assert status == 1
    assert "in test_stubborn" in stderr
    assert "Timeout" in stderr
