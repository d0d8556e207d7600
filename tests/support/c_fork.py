"""Forks as other programs make them: in C, where no hook of Python runs, or the child's alone."""

import ctypes
import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any

from support.service import TIMEOUT_S

HOOKS = ["none", "child", "both"]


def in_fork(hooks: str, job: Callable[[], Any]) -> Any:
    """What the job returns in a forked child, by JSON. The child ends without `atexit`."""
    reader, writer = os.pipe()
    pid = os.fork() if hooks == "both" else ctypes.PyDLL(None).fork()
    if not pid:
        _run(writer, hooks, job)
    os.close(writer)
    try:
        return json.loads(_read(reader))
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _run(writer: int, hooks: str, job: Callable[[], Any]) -> None:
    try:
        if hooks == "child":
            ctypes.pythonapi.PyOS_AfterFork_Child()  # as uWSGI with py-call-osafterfork
        result = job()
    except BaseException as error:
        result = repr(error)
    os.write(writer, json.dumps(result).encode())
    os._exit(0)


def _read(reader: int) -> bytes:
    data = b""
    while True:
        if not select.select([reader], [], [], TIMEOUT_S)[0]:
            raise AssertionError("the child hangs")
        part = os.read(reader, 1 << 16)
        if not part:
            return data
        data += part
