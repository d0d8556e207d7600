"""docs/start/limit-requests.md does what it promises: its program, in three real replicas, with its rule."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from threading import Thread

import pytest

from support.service import TIMEOUT_S, Server, environment, until
from support.uvicorn_app import Reply, UvicornApp

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "start" / "limit-requests.md").read_text()
PROGRAM = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
RULE = re.search(r"countless (budget create 'keys.*)", PAGE)
LIMIT = 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the rule of the page, but for a month: a test may run over the end of a minute."""
    assert RULE is not None
    with Server(tmp_path_factory.mktemp("state"), "--silent-after", "1s") as server:
        command = [sys.executable, "-m", "countless.cli.main", *shlex.split(RULE[1].replace("minute", "month"))]
        subprocess.run(command, check=True, env=environment(COUNTLESS_URL=server.url))
        yield server


@pytest.fixture(scope="module")
def replicas(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[UvicornApp]]:
    assert PROGRAM is not None
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "main.py").write_text(PROGRAM[1])
    with ExitStack() as stack:
        yield [start(folder, f"replica-{number}", server, stack) for number in range(3)]


def start(folder: Path, name: str, server: Server, stack: ExitStack) -> UvicornApp:
    return stack.enter_context(UvicornApp("main:app", folder, folder / f"{name}.log", COUNTLESS_URL=server.url))


def ask(replica: UvicornApp, key: str) -> Reply:
    """The answer to a request; again, if the coordinator did not answer within the second that the page allows."""
    reply: Reply = until(lambda: unless_starved(replica.request("GET", "/", x_api_key=key)), "an answer")
    return reply


def unless_starved(reply: Reply) -> Reply | None:
    return None if reply.status == 503 else reply


def test_three_replicas_admit_the_limit_of_a_key_together(replicas: list[UvicornApp]) -> None:
    statuses: Counter[int] = Counter()
    for replica, _ in zip(cycle(replicas), range(2 * LIMIT), strict=False):
        statuses[ask(replica, "me").status] += 1
    assert statuses == {200: statuses[200], 429: 2 * LIMIT - statuses[200]}
    assert LIMIT - 1 <= statuses[200] <= LIMIT  # the slack is one request
    refused = ask(replicas[0], "me")
    assert refused.status == 429
    assert re.fullmatch(r'"default";q=100;w=\d+', refused.headers["ratelimit-policy"])
    assert refused.headers["ratelimit"] == f'"default";r=0;t={refused.headers["retry-after"]}'
    assert ask(replicas[0], "you").status == 200


def test_replicas_under_load_admit_no_more_than_the_limit(replicas: list[UvicornApp]) -> None:
    """All replicas at once, with several connections each, until each connection was refused."""
    admitted: list[int] = []

    def load(replica: UvicornApp) -> None:
        while len(admitted) <= LIMIT and ask(replica, "load").status == 200:
            admitted.append(1)

    threads = [Thread(target=load, args=(replica,)) for replica in replicas for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * TIMEOUT_S)
        assert not thread.is_alive()
    assert LIMIT - 1 <= len(admitted) <= LIMIT


def test_stopped_replica_leaves_its_units_to_the_others(server: Server, replicas: list[UvicornApp]) -> None:
    folder = replicas[0].folder
    with ExitStack() as stack:
        stopped = start(folder, "stopped", server, stack)
        assert ask(stopped, "stopped").status == 200
        stopped.stop()
        admitted = 1
        while admitted <= LIMIT and ask(replicas[0], "stopped").status == 200:
            admitted += 1
    assert LIMIT - 1 <= admitted <= LIMIT


def test_replicas_go_on_without_the_coordinator_and_recover(server: Server, replicas: list[UvicornApp]) -> None:
    """What a replica was granted is admitted; then it answers 503, until the coordinator is back."""
    assert ask(replicas[0], "alone").status == 200
    server.kill()
    statuses = [200]
    while statuses[-1] == 200 and len(statuses) <= LIMIT:
        statuses.append(replicas[0].request("GET", "/", x_api_key="alone").status)
    assert statuses[-1] == 503
    assert len(statuses) > 2
    server.start()
    until(lambda: replicas[0].request("GET", "/", x_api_key="alone").status == 200, "units of the coordinator")
