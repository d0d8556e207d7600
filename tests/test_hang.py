"""A test that hangs fails, and says where: a suite that hangs says nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.service import TIMEOUT_S

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
# The time of a test that hangs is over soon after it has come to where it hangs, however long that takes.
HANGING = """
import asyncio, signal, threading, time, uvloop

def hangs():
    signal.setitimer(signal.ITIMER_REAL, 0.2, 5)

def other_thread():
    hangs()
    time.sleep(60)

def test_thread():
    threading.Thread(target=other_thread, daemon=True).start()
    threading.Event().wait()

async def other_task():
    hangs()
    await asyncio.Event().wait()

def test_task():
    async def main():
        task = asyncio.create_task(other_task())
        while True:
            await asyncio.sleep(0)
    asyncio.run(main())

async def in_uvloop():
    hangs()
    await asyncio.Event().wait()

def test_uvloop():
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(in_uvloop())

def test_next(): pass
"""
STUBBORN = """
import signal, threading

def test_stubborn():
    signal.setitimer(signal.ITIMER_REAL, 0.2, 5)
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass
"""


def run(directory: Path, program: str, *options: str) -> "subprocess.CompletedProcess[str]":
    file = directory / "test_hanging.py"
    file.write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.hang", *options, str(file)]
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=directory, env=variables, capture_output=True, text=True, timeout=2 * TIMEOUT_S)


def test_hanging_test_fails_with_the_stacks_of_all_threads_and_tasks_and_the_next_one_runs(tmp_path: Path) -> None:
    done = run(tmp_path, HANGING)
    assert done.returncode == 1, done.stderr
    assert "3 failed, 1 passed" in done.stdout
    thread, task = done.stdout.split("_ test_uvloop _")[0].split("_ test_task _")
    for found, places in ((thread, ("other_thread", "test_thread")), (task, ("other_task", "main"))):
        assert "Hang: not done after 300 s" in found
        assert all(f"in {place}\n" in found for place in places)


def test_process_ends_if_the_hanging_test_catches_everything(tmp_path: Path) -> None:
    ini = "-o", "faulthandler_timeout=4", "-o", "faulthandler_exit_on_timeout=true"
    done = run(tmp_path, STUBBORN, *ini)
    assert done.returncode == 1
    assert "in test_stubborn" in done.stderr
    assert "Timeout" in done.stderr
