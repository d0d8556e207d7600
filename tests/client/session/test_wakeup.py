"""A thread that waits for sockets or for a notification."""

import os
import resource
import socket
from collections.abc import Iterator

import pytest

from countless.client.session.loop import Wakeup

LARGE = 1100  # `select` takes no file descriptor above 1,023


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, LARGE + 1), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_notifications_end_the_wait_once() -> None:
    wakeup = Wakeup()
    wakeup.notify()
    wakeup.notify()
    assert not wakeup.wait(None)
    assert not wakeup.wait(0.0)
    wakeup.close()


@pytest.mark.usefixtures("many_files")
def test_process_with_more_than_a_thousand_open_files_sees_its_data() -> None:
    wakeup = Wakeup()
    near, far = socket.socketpair()
    with near, far, socket.socket(fileno=os.dup2(near.fileno(), LARGE)) as watched:
        assert not wakeup.wait(0.0, [watched])
        far.send(b"data")
        assert wakeup.wait(None, [watched])
    wakeup.close()
