"""The intake: sampled lines add up, labels are capped, and every line is counted or dropped for a reason."""

import logging
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import countless
from countless.agent.intake import Intake
from countless.agent.rules import WindowRules
from countless.agent.statsd import Fault
from countless.client.client import Client
from countless.client.counter import LABEL_CAP
from countless.client.surroundings import REAL
from countless.client.transport.endpoint import Endpoint
from support.local_counters import counts_of


@pytest.fixture(autouse=True, scope="module")
def disabled_client() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTLESS_DISABLE", "1")
        yield


def new_intake(prefix: str = "", max_series: int = 100) -> tuple[countless.Client, Intake]:
    client = countless.connect("http://127.0.0.1:9", site="here")
    return client, Intake(client, prefix, max_series)


def counted(client: countless.Client, counter: str, **labels: str) -> int:
    return client.counter(counter).labels(**labels).count


rates = st.sampled_from(["1", "0.5", "0.3", "0.24", "0.7", "0.999", "0.0007", "1e-05"])
lines = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), rates), max_size=60)


@pytest.mark.slow
@given(lines, st.integers(1, 60))
def test_sampled_lines_add_up_to_the_nearest_whole_event(lines: list[tuple[str, int, str]], size: int) -> None:
    client, intake = new_intake()
    exact = {"a": Fraction(0), "b": Fraction(0)}
    for start in range(0, len(lines), size):
        batch = lines[start : start + size]
        intake.datagrams([f"{name}:{n}|c|@{rate}".encode() for name, n, rate in batch])
        for name, n, rate in batch:
            exact[name] += n / Fraction(rate)
        for name, total in exact.items():
            assert abs(counted(client, name) - total) <= Fraction(1, 2) + Fraction(1, 10**9)
    assert intake.lines == len(lines)


def test_fractions_of_sampled_lines_are_carried() -> None:
    client, intake = new_intake()
    seen = []
    for _ in range(6):
        intake.datagrams([b"jobs:1|c|@0.3"])
        seen.append(counted(client, "jobs"))
    assert seen == [3, 7, 10, 13, 17, 20]


def test_datagrams_with_many_lines_are_counted() -> None:
    client, intake = new_intake(prefix="web.")
    intake.datagrams([b"jobs:1|c\njobs:1|c\n\njobs:2|c\r\n", b"jobs:1|c", b"", b"other:5|c|#a:b\nlevel:1|g"])
    assert (counted(client, "web.jobs"), counted(client, "web.other", a="b")) == (5, 5)
    assert intake.lines == 6
    assert intake.dropped[Fault.NOT_A_COUNTER] == 1


@given(st.lists(st.binary(max_size=80) | st.just(b"x:1|c\nx:2|c|@0.7|#self:1"), max_size=8))
def test_random_bytes_are_counted_or_dropped(batch: list[bytes]) -> None:
    client, intake = new_intake(max_series=3)
    intake.datagrams(batch)
    lines = [line for datagram in batch for line in datagram.split(b"\n") if line.strip()]
    assert intake.lines == len(lines)
    assert sum(intake.dropped.values()) <= intake.lines
    assert counted(client, "x") == sum(datagram.split(b"\n").count(b"x:1|c") for datagram in batch)


def test_labels_beyond_the_cap_are_counted_in_the_overflow_series() -> None:
    client, intake = new_intake(max_series=LABEL_CAP + 100)
    intake.datagrams([b"\n".join(b"hits:1|c|#user:%d" % i for i in range(LABEL_CAP + 7))])
    assert counted(client, "hits", user="0") == 1
    assert counted(client, "hits", overflow="true") == 7
    assert intake.overflowed == 7


def test_full_agent_counts_labels_in_overflow_series_and_drops_new_counters() -> None:
    client, intake = new_intake(max_series=3)
    intake.datagrams([b"a:1|c|#k:1\na:1|c|#k:2\nb:1|c"])
    assert intake.series == 3
    intake.datagrams([b"a:1|c|#k:1\na:4|c|#k:3\na:5|c|#k:4|@0.5\nb:1|c|#k:1\na:1|c\nc:1|c\nc:1|c\nd:1|c|#k:1"])
    assert (counted(client, "a", k="1"), counted(client, "a", overflow="true"), counted(client, "a")) == (2, 14, 1)
    assert counted(client, "b", overflow="true") == 1
    assert (intake.overflowed, intake.dropped[Fault.TOO_MANY]) == (3, 3)


def test_names_too_long_are_dropped_and_not_kept() -> None:
    client, intake = new_intake()
    intake.datagrams([b"x" * 501 + b":1|c", b"y:1|c|#k:" + b"v" * 500])
    assert (intake.dropped[Fault.NAME], intake.series) == (2, 0)
    assert "0 counters" in repr(client)


def test_first_dropped_line_of_each_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    _, intake = new_intake()
    with caplog.at_level(logging.WARNING, "countless.agent"):
        intake.datagrams([b"x:-1|c\nx:-2|c\nlevel:1|g", b"x:-3|c\njunk"])
    dropped = [record.message for record in caplog.records if record.name == "countless.agent"]
    assert sorted(message.partition(" line=")[0] for message in dropped) == [
        "line dropped: reason=malformed",
        "line dropped: reason=negative",
    ]
    assert intake.dropped[Fault.NEGATIVE] == 3


def test_rules_decide_which_counters_have_windows() -> None:
    now = 490_123 * 3600.0
    client = Client(
        Endpoint.parse("http://127.0.0.1:9"), None, "here", surroundings=REAL._replace(wall_clock=lambda: now)
    )
    intake = Intake(client, "web.", rules=WindowRules(["web.quiet=none", "web.*=hour"]))
    intake.datagrams([b"jobs:2|c\njobs:3|c|#queue:a\nquiet:4|c"])
    now += 3600
    intake.datagrams([b"jobs:5|c"])
    assert counts_of(client) == {
        "web.jobs@hour:490123": 2,
        'web.jobs{queue="a"}@hour:490123': 3,
        "web.quiet": 4,
        "web.jobs@hour:490124": 5,
    }
    client.close(0)


def test_names_that_leave_no_room_for_a_window_are_dropped() -> None:
    client = Client(Endpoint.parse("http://127.0.0.1:9"), None, "here")
    intake = Intake(client, rules=WindowRules(["*=hour"]))
    intake.datagrams([b"x" * 490 + b":1|c", b"jobs:1|c|#a:" + b"x" * 480])
    assert (intake.dropped[Fault.NAME], counts_of(client), intake.series) == (2, {}, 0)
    assert intake.find("jobs@hour", ()) is Fault.NAME
    assert "0 counters" in repr(client)
    client.close(0)
