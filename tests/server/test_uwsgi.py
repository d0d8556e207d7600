"""A real uWSGI, which forks its workers in C: every request is counted once, and no budget is exceeded."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from shutil import copytree
from threading import Thread

import pytest

import countless
from support.service import Server, until
from support.uwsgi import MODES, WORKERS, Response, Uwsgi

pytestmark = pytest.mark.slow

LIMIT = 40
FEW = [  # mode, enable-threads (for uWSGI before 2.0.30), state_dir, counted before the fork
    ("default", False, False, 3),
    ("default", True, True, 3),
    ("child's hook", True, False, 3),
]
ALL = [case for case in product(MODES, [False, True], [False, True], [0, 3]) if case not in FEW]


@pytest.fixture
def quota(server: Server) -> Iterator[Server]:
    server.reader.request("POST", "/api/v1/budgets", {"name": "quota", "limit": LIMIT})
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/quota")


def side_by_side(web: Uwsgi, path: str, number: int) -> list[Response]:
    """So many requests, several at a time."""
    responses: list[Response] = []

    def ask() -> None:
        responses.extend(web.get(path) for _ in range(number // WORKERS))

    threads = [Thread(target=ask) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return responses


def run_workers(server: Server, directory: Path, mode: str, threads: bool, state_dir: bool, before: int) -> None:
    options = ["--enable-threads"] if threads else []
    kept = directory / "state" if state_dir else None
    web = Uwsgi(directory, server.url, mode, *options, before=before, state_dir=kept)
    loads = WORKERS if mode == "lazy" else 1  # of the module
    try:
        counted = side_by_side(web, "/", 90)

        def every_worker_has_answered() -> bool:
            counted.extend(side_by_side(web, "/", WORKERS))
            return len({each.pid for each in counted}) == WORKERS

        until(every_worker_has_answered, "an answer of every worker")
        taken = side_by_side(web, "/take", 60)
        web.stop()
    finally:
        web.kill()
    admitted = sum(each.allowed for each in taken) + loads * before
    assert 0 < admitted <= LIMIT
    until(lambda: server.inspect("hits")["known"] == len(counted) + loads * before, "every request is counted")
    if loads * before == 0:  # uWSGI's master ends without `atexit`, and hands nothing in
        until(lambda: server.reader.request("GET", "/api/v1/budgets/quota")["used_upper"] == admitted, "the hand-ins")


@pytest.mark.parametrize(("mode", "threads", "state_dir", "before"), FEW)
def test_workers_of_uwsgi_count_every_request_and_stay_within_a_budget(
    quota: Server, tmp_path: Path, mode: str, threads: bool, state_dir: bool, before: int
) -> None:
    run_workers(quota, tmp_path, mode, threads, state_dir, before)


@pytest.mark.soak
@pytest.mark.parametrize(("mode", "threads", "state_dir", "before"), ALL)
def test_workers_of_uwsgi_in_every_mode(
    quota: Server, tmp_path: Path, mode: str, threads: bool, state_dir: bool, before: int
) -> None:
    run_workers(quota, tmp_path, mode, threads, state_dir, before)


def test_master_of_uwsgi_leaves_what_it_finds_in_the_state_dir_to_its_workers(server: Server, tmp_path: Path) -> None:
    """A worker that it forks while a thread of it has the GIL would hang."""
    with countless.connect(server.url, site="web", state_dir=tmp_path / "original") as client:
        client.counter("hits").add(5)
        copytree(tmp_path / "original", tmp_path / "state")  # as if the process had been killed
        client.close()
    server.kill()  # a thread that delivers would go on for ever
    web = Uwsgi(tmp_path, server.url, "default", state_dir=tmp_path / "state")
    try:
        until(lambda: f"spawned uWSGI worker {WORKERS}" in web.log, "the workers")
        assert len(list(Path(f"/proc/{web.process.pid}/task").iterdir())) == 1
        server.start()
        web.get()
        until(lambda: server.inspect("hits")["known"] == 6, "the delivery")
        until(lambda: len(list((tmp_path / "state").iterdir())) == 2, "the end of the delivery")
        web.stop()
    finally:
        web.kill()
