"""Windows in a shell: `countless counter`, `get --window`, `get --rolling` and `rate`."""

import json
import re
from collections.abc import Iterator

import pytest

import countless
from countless.errors import CounterRefused
from support.commands import run_command
from support.service import Server, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        yield server


def run(words: str, url: str) -> tuple[int, str]:
    ended = run_command(*words.split(), COUNTLESS_URL=url)
    return ended.returncode, ended.stdout + ended.stderr


def test_counter_with_windows_is_created_counted_read_changed_and_deleted(server: Server) -> None:
    made = run("counter create requests --per month --tz Europe/Berlin --floor 1k --keep 12 --scheme exact", server.url)
    assert made == (0, "requests: 0 (from 0 to 0; exact; per month)\n")
    with countless.connect(server.url) as client:
        client.counter("requests", per="month", tz="Europe/Berlin").add(1200)
        assert client.flush()
        code, text = run("get requests --window this-month", server.url)
        assert (code, re.sub(r"at .*\)", "at ...)", text)) == (
            0,
            "requests this-month: 1,200 (exact; open, resets at ...)\n",
        )
        assert run("get requests --rolling 1h", server.url) == (0, "requests, last 1h: 1,200, exact, 0.333/s\n")
        assert run("rate requests --rolling 10m", server.url) == (0, "requests, last 10m: 2.00/s (from 2.00 to 2.00)\n")
    code, text = run("get requests --window last", server.url)
    assert (code, text.startswith("requests last: 0 (exact; before the first window, which began at ")) == (0, True), (
        text
    )
    assert run("counter list", server.url) == (0, "requests: 1,200 (from 1,200 to 1,200; exact; per month)\n")
    assert json.loads(run("get requests --window now --json", server.url)[1])["upper"] == 1200
    changed = json.loads(run("counter set requests --keep 3 --floor auto --alpha 2% --json", server.url)[1])
    assert (changed["windows"]["keep"], changed["windows"]["floor"], changed["alpha"]) == (3, None, 0.02)
    assert run("counter delete requests", server.url) == (0, "")
    assert run("get requests", server.url) == (2, "countless: there is no counter 'requests'\n")


def test_family_with_windows_is_created_counted_and_read(server: Server) -> None:
    made = run("counter create visits --family --epsilon 2% --per month --keep 3", server.url)
    assert made == (0, "visits: 0 (from 0 to 0; exact; per month)\n")
    with countless.connect(server.url) as client:
        visits, latency = client.counter("visits", family=True, per="month"), client.distribution("ms", per="month")
        visits.labels(tenant="acme").add(30)
        visits.labels(tenant="umbrella").add(10)
        latency.observe(17)
        assert client.flush()
        # This site's epsilon is smaller than that of the family, so it is sent smaller steps, and has to confirm them.
        until(lambda: client.top("visits", window="now").state == "exact", "the smaller steps")
        code, text = run("top visits --share 50% --window now", server.url)
        head, acme = text.splitlines()
        assert (code, head) == (0, "visits: 40 (from 40 to 40; exact), 50.00% or more:")
        assert acme.endswith(' 75.0%  30 (from 30 to 30)  {tenant="acme"}')
        assert [each.lower for each in client.top("visits", window="this-month").series] == [30, 10]
        assert client.quantile("ms", 0.5, window="now").lower == 1
    nothing = "visits: 0 (from 0 to 0; exact); nothing was counted, so no series has 2.00% or more\n"
    assert run("top visits --window last", server.url) == (0, nothing)
    assert run("get visits --window this-month", server.url)[1].startswith("visits this-month: 40 (exact; open")
    nothing = "ms: 0 observations (from 0 to 0; exact); so there are no quantiles\n"
    assert run("quantile ms 0.5 --window last", server.url) == (0, nothing)
    for words, problem in {
        "top visits --rolling 5m": "ask for a window, such as now or last",
        "top ms --window now": "'ms' is a distribution of values, and has no labels",
        "counter create other --family --alpha 1%": "alpha can't be used for a family, which has epsilon",
        "counter create other --family --per hour --floor 5": "floor can't be used for a family",
        "counter create other --epsilon 1%": "epsilon can't be used for a counter, which has alpha",
        "counter set visits --epsilon 1%": "no such option: --epsilon",
    }.items():
        code, text = run(words, server.url)
        assert (code, problem in text) == (2, True), text
    for name in ("visits", "ms"):
        assert run(f"counter delete {name}", server.url) == (0, "")


def test_counter_that_has_labelled_series_only_is_configured_and_deleted_by_its_name(server: Server) -> None:
    series = 'visits{route="/a"}'
    with countless.connect(server.url, site="old") as client:
        client.counter("visits").labels(route="/a").add(7)
        client.counter("visits").labels(route="/b").add(5)
    code, text = run("get visits --window now", server.url)
    assert (code, "`countless counter set visits --per hour` starts some" in text) == (2, True)
    code, text = run(f"counter set {series} --per month", server.url)
    assert (code, "get windows with their counter: `countless counter set visits --per month`" in text) == (2, True)
    assert (server.inspect("visits")["known"], server.inspect("visits")["estimate"]) == (12, 12)
    assert run("counter set visits --per month --alpha 2%", server.url)[0] == 0
    text = run("get visits --window now", server.url)[1]
    assert text.startswith("visits now: 0 (from 0 to 12; open"), text
    with countless.connect(server.url, site="new") as client:
        client.counter("visits", per="month").labels(route="/a").add(30)
    assert run("get visits", server.url)[1].startswith("visits: 42 (from 42 to 42; exact")
    assert (server.inspect("visits")["known"], server.inspect("visits")["windows"]["per"]) == (42, "month")
    changed = json.loads(run(f"counter set {series} --keep 5 --json", server.url)[1])
    assert (changed["windows"]["per"], changed["alpha"]) == ("month", 0.02)
    assert run("counter delete visits", server.url) == (0, "")
    assert run("counter list", server.url) == (0, "no counters: nothing was counted yet\n")


def test_add_to_a_counter_with_windows_names_the_option(server: Server) -> None:
    run("counter create added --per month --tz Asia/Tokyo", server.url)
    refused = "countless: counter 'added' has windows: count it with --per month\n"
    assert run("add added 2", server.url) == (2, refused)
    assert run("add added 3 --per month --tz Asia/Tokyo", server.url) == (0, "")
    assert run("get added", server.url) == (0, "added: 3 (from 3 to 3; exact; per month)\n")


def test_windows_begin_for_a_family_and_a_distribution_that_had_none(server: Server) -> None:
    """By months: a shorter window could end while the test runs."""
    with countless.connect(server.url, site="old") as client:
        client.counter("pages", family=True).labels(path="/a").add(2_000)
        client.distribution("ms").observe(17)
        assert client.flush()
        for name in ("pages", "ms"):
            code, text = run(f"counter set {name} --per month", server.url)
            assert (code, f"{name!r} gets windows only while no site counts it: end 'old' first" in text) == (2, True)
    code, text = run("top pages --window now", server.url)
    assert (code, "`countless counter set pages --per hour` starts some\n" in text) == (2, True), text
    assert run("counter set pages --per month", server.url)[1] == (
        "pages: 2,000 (from 2,000 to 2,000; exact; per month)\n"
    )
    assert run("counter set ms --per month", server.url)[0] == 0
    with countless.connect(server.url, site="new") as client:
        client.counter("pages", family=True, per="month").labels(path="/b").add(30)
        client.distribution("ms", per="month").observe(18)
        assert client.flush()
        assert client.top("pages").upper >= 2_030
        server.kill()
        server.start()
        until(lambda: server.answer("ms")["lower"] == 2 and server.answer("ms")["state"] != "learning")
    assert run("top pages --share 1%", server.url)[1].startswith("pages: 2,030 (from 2,030 to 2,030; exact), 1.00%")
    text = run("get pages --window now", server.url)[1]
    assert re.search(r"pages now: 0 \(from 0 to 2,030; open, .*; unknown before \d{4}-\d\d-01T00:00:00\+00:00\)", text)
    assert run("quantile ms 0.5 --window now", server.url)[0] == 0
    assert run("counter set pages --keep 2", server.url)[0] == 0
    for words, problem in {
        "counter set pages --per hour": "per, tz and anchor can't be changed",
        "counter set pages --alpha 2%": "alpha can't be used for a family, which has epsilon",
    }.items():
        code, text = run(words, server.url)
        assert (code, problem in text) == (2, True), text
    for name in ("pages", "ms"):
        assert run(f"counter delete {name}", server.url) == (0, "")


def test_windows_begin_for_a_counter_that_had_none_and_its_total_stays(server: Server) -> None:
    """By months: a shorter window could end while the test runs."""
    with countless.connect(server.url, site="old") as client:
        client.counter("visits").add(2_000)
        assert client.flush()
        code, text = run("counter set visits --per month", server.url)
        assert (code, "gets windows only while no site counts it: end 'old' first" in text) == (2, True)
        early = countless.connect(server.url, site="early")
        early.counter("visits", per="month").add(1)
        refused = r"counter 'visits \(month from 2[0-9-]+-01T00:00:00\+00:00\)' is refused by the coordinator"
        with pytest.raises(CounterRefused, match=refused):
            early.flush()
        with pytest.raises(CounterRefused):
            early.close(timeout=0.1)
    assert run("counter set visits --per month --tz Asia/Tokyo", server.url)[1] == (
        "visits: 2,000 (from 2,000 to 2,000; exact; per month)\n"
    )
    with countless.connect(server.url, site="new") as client:
        client.counter("visits", per="month", tz="Asia/Tokyo").add(30)
        assert client.flush()
        assert run("get visits", server.url)[1].startswith("visits: 2,030 (from 2,030 to 2,030; exact")
        text = run("get visits --window now", server.url)[1]
        assert re.search(
            r"visits now: 0 \(from 0 to 2,030; open, .*; unknown before \d{4}-\d\d-01T00:00:00\+09:00\)", text
        )
        server.kill()
        server.start()
        until(lambda: server.answer("visits")["estimate"] == 2_030 and server.answer("visits")["state"] == "exact")
        assert server.answer("visits")["per"] == "month"
    text = run("counter set visits --per hour", server.url)[1]
    assert "per, tz and anchor can't be changed: delete the counter to get other windows" in text
    assert run("counter delete visits", server.url) == (0, "")


def test_questions_without_an_answer_exit_2_and_say_what_to_do(server: Server) -> None:
    assert run("counter create plain", server.url)[0] == 0
    for words, problem in {
        "get plain --window today": "'plain' has no windows: `countless counter set plain --per hour` starts some",
        "get plain --rolling soon": "a duration such as 30s, 15m, 1h or 7d",
        "get plain --rolling 5m --window now": "give --window or --rolling, and not both",
        "counter set plain": "nothing to change: give --alpha",
        "counter set plain --tz Europe/Berlin": "tz needs windows: give per, too",
        "counter set plain --floor many": "a whole number of units",
        "counter delete plain --keep 3": "no such option: --keep",
        "counter explode plain": "no such command 'explode'",
    }.items():
        code, text = run(words, server.url)
        assert (code, problem in text) == (2, True), text
    assert run("get plain", server.url) == (0, "plain: 0 (from 0 to 0; exact)\n")
