"""A family and a distribution in real processes that are killed, with `state_dir`, and a coordinator that is killed."""

import json
from collections import Counter
from pathlib import Path

import pytest

import countless
from countless.errors import InvalidParameter
from support.commands import run_command
from support.service import TIMEOUT_S, Server, python, until

COUNTING = """
import countless, sys

client = countless.connect(site="kept")
pages, latency = client.counter("pages", family=True, epsilon=0.05), client.distribution("ms", epsilon=0.05)
for number in range(3000):
    pages.labels(page=number % 7).inc()
    latency.observe(1 + number % 100)
print("counted", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_killed_programs_and_a_killed_coordinator_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    exact = Counter(f'pages{{page="{number % 7}"}}' for number in range(3000))
    with Server(tmp_path / "server") as server:
        for number in range(2):
            program = python(COUNTING, server.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path / "state"))
            assert program.stdout is not None
            assert program.stdout.readline() == "counted\n"
            if number:
                server.kill()
                server.start()
            program.kill()
            program.communicate(timeout=TIMEOUT_S)
        with countless.connect(server.url, site="kept", state_dir=tmp_path / "state") as client:
            pages = client.counter("pages", family=True, epsilon=0.05)
            pages.add(4)
        reader = countless.Reader(server.url)
        top = until(lambda: (seen := reader.top("pages", 0.0001)).state == "exact" and seen, "exact counts")
        counts = {each.counter: each.lower for each in top.series}
        assert counts == {**{name: 2 * n for name, n in exact.items()}, "pages": 4}
        assert top.lower == top.upper == 6004
        quantiles = reader.quantile("ms", 0.5, 0.99)
        assert (quantiles.lower, quantiles.upper) == (6000, 6000)
        for each, value in zip(quantiles.quantiles, (50, 99), strict=True):
            assert each.lower <= value <= each.upper
        assert {each["counter"] for each in server.reader.counters()} == {"pages", "ms"}
        check_commands(server)


def check_commands(server: Server) -> None:
    def run(*words: str) -> str:
        return run_command(*words, COUNTLESS_URL=server.url).stdout

    assert run("quantile", "ms", "0.5").splitlines()[0] == "ms: 6,000 observations (from 6,000 to 6,000; exact)"
    assert json.loads(run("quantile", "ms", "--json"))["quantiles"][2]["q"] == 0.99
    assert '{page="0"}' in run("top", "pages")
    assert run("get", "pages") == "pages: 6,004 (from 6,004 to 6,004; exact)\n"
    for words, problem in {
        ("quantile", "ms", "1.5"): "q must be a quantile from p0 to p100",
        ("quantile", "pages"): "'pages' has labels, and no quantiles: ask for its top",
        ("quantile", "none"): "there is no distribution 'none'",
        ("top", "ms"): "'ms' is a distribution of values, and has no labels",
        ("top", "pages", "--rolling", "5m"): "'pages' has no rolling counts",
    }.items():
        refused = run_command(*words, COUNTLESS_URL=server.url)
        assert (refused.returncode, problem in refused.stderr) == (2, True), refused


def test_invalid_use_of_families_changes_nothing() -> None:
    client = countless.connect("http://127.0.0.1:1")
    with pytest.raises(InvalidParameter, match="per = 'year'"):
        client.counter("pages", family=True, per="year")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="epsilon must be a number from 1e-9 to 1/2"):
        client.counter("pages", family=True, epsilon=0.5)
    with pytest.raises(InvalidParameter, match="epsilon needs family=True"):
        client.counter("pages", epsilon=0.1)
    with pytest.raises(InvalidParameter, match="label_cap must be an integer from 0 to 100000"):
        client.counter("pages", family=True, label_cap=100_001)
    with pytest.raises(InvalidParameter, match="accuracy must be a number from"):
        client.distribution("ms", accuracy=0)
    latency = client.distribution("ms")
    for value in (-1, float("nan"), True, "fast"):
        with pytest.raises(InvalidParameter, match="value must be a finite number of at least 0"):
            latency.observe(value)  # type: ignore[arg-type]
    assert latency.count == 0
    with pytest.raises(InvalidParameter, match="family must be True"):
        client.counter("ms")
    with pytest.raises(InvalidParameter, match="this program first used 'ms' as a distribution with"):
        client.distribution("ms", epsilon=0.1)
    client.counter("hits")
    with pytest.raises(InvalidParameter, match="a family needs another name"):
        client.counter("hits", family=True)
    client.close(0)
