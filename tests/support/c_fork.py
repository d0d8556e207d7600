"""Forks as other programs make them: in C, where no hook of Python runs, or the child's alone."""

import ctypes
import faulthandler
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from support.service import TIMEOUT_S

HOOKS = ["none", "child", "both"]


def in_fork(hooks: str, job: Callable[[], Any]) -> Any:
    """What the job returns in a forked child, by JSON. The child ends without `atexit`."""
    reader, writer = os.pipe()
    pid = os.fork() if hooks == "both" else _fork_in_c()
    if not pid:
        _run(writer, hooks, job)
    os.close(writer)
    try:
        return json.loads(_read(reader, pid))
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork_in_c() -> int:
    """No thread may ask for the GIL meanwhile: the child would wait for that thread, which it does not have."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(TIMEOUT_S)
    try:
        return int(ctypes.PyDLL(None).fork())
    finally:
        sys.setswitchinterval(interval)


def _run(writer: int, hooks: str, job: Callable[[], Any]) -> None:
    faulthandler.register(signal.SIGUSR1, file=writer)
    try:
        if hooks == "child":
            ctypes.pythonapi.PyOS_AfterFork_Child()  # as uWSGI with py-call-osafterfork
        result = job()
    except BaseException as error:
        result = repr(error)
    os.write(writer, json.dumps(result).encode())
    os._exit(0)


def _read(reader: int, pid: int) -> bytes:
    data = b""
    while True:
        if not select.select([reader], [], [], TIMEOUT_S)[0]:
            os.kill(pid, signal.SIGUSR1)
            raise AssertionError(f"the child hangs:\n{os.read(reader, 1 << 16).decode()}")
        part = os.read(reader, 1 << 16)
        if not part:
            return data
        data += part
