"""The parser of StatsD lines: real lines, generated lines, and random bytes."""

from fractions import Fraction
from string import ascii_letters, digits

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countless.agent.statsd import MAX_COUNT, SCALE, Fault, Labels, StatsdCount, parse
from countless.wire.keys import is_counter

NO_LABELS: Labels = ()


@pytest.mark.parametrize(
    ("line", "name", "labels", "events"),
    [
        # StatsD's own documentation
        (b"gorets:1|c", "gorets", NO_LABELS, 1),
        (b"gorets:1|c|@0.1", "gorets", NO_LABELS, 10),
        # DogStatsD's
        (b"page.views:1|c", "page.views", NO_LABELS, 1),
        (b"users.online:1|c|#country:china", "users.online", (("country", "china"),), 1),
        (b"users.online:1|c|@0.5|#country:china", "users.online", (("country", "china"),), 2),
        (b"page.views:1:2:32|c", "page.views", NO_LABELS, 35),
        (b"page.views:1|c|#env:dev|c:83c0a99c0a54c0c187f461c7980e9b57f3f6a8b0", "page.views", (("env", "dev"),), 1),
        (b"page.views:15|c|#env:dev|T1656581400", "page.views", (("env", "dev"),), 15),
        (b"page.views:1|c|#env:dev|c:in-1234|e:it-false,cn-redis,pu-75a2|card:low", "page.views", (("env", "dev"),), 1),
        # gunicorn, the statsd package for Python, nginx modules, Envoy
        (b"app.gunicorn.requests:1|c|@1.0", "app.gunicorn.requests", NO_LABELS, 1),
        (b"gunicorn.request.status.200:1|c|@1.0|#a:b", "gunicorn.request.status.200", (("a", "b"),), 1),
        (b"foo:5|c|@1e-05", "foo", NO_LABELS, 500_000),
        (b"envoy.cluster.upstream_rq_2xx:7|c", "envoy.cluster.upstream_rq_2xx", NO_LABELS, 7),
        # what is allowed besides
        (b"jobs:0|c", "jobs", NO_LABELS, 0),
        (b"jobs:-0|c", "jobs", NO_LABELS, 0),
        (b"jobs:+3|c", "jobs", NO_LABELS, 3),
        (b"jobs:3.00|c", "jobs", NO_LABELS, 3),
        (b"jobs:0003|c|@.5", "jobs", NO_LABELS, 6),
        (b"jobs:1|c|#", "jobs", NO_LABELS, 1),
        (b"jobs:1|c|#b,,a:", "jobs", (("a", ""), ("b", "true")), 1),
        (b"jobs:1|c|#a:1,a:2", "jobs", (("a", "2"),), 1),
        (b"jobs:1|c|#url:http://x/{y}", "jobs", (("url", "http://x/{y}"),), 1),
        ("jobs:1|c|#city:Kraków".encode(), "jobs", (("city", "Kraków"),), 1),
        ("jobs:1|c|#kube/app:x,città:y,self:z".encode(), "jobs", (("città", "y"), ("kube/app", "x"), ("self", "z")), 1),
        (b"jobs:%d|c" % MAX_COUNT, "jobs", NO_LABELS, MAX_COUNT),
    ],
)
def test_real_line_is_parsed(line: bytes, name: str, labels: Labels, events: int) -> None:
    assert parse(line) == StatsdCount(name, labels, events * SCALE)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        *((line, Fault.NOT_A_COUNTER) for line in (b"gaugor:333|g", b"gaugor:-10|g", b"glork:320|ms|@0.1")),
        *((line, Fault.NOT_A_COUNTER) for line in (b"uniques:765|s", b"song.length:240|h|@0.5", b"x:4|d", b"x:4|m")),
        (b"_e{21,36}:An exception occurred|Cannot parse CSV file from 10.0.0.17|t:warning", Fault.NOT_A_COUNTER),
        (b"_sc|Redis connection|2|#env:dev|m:Redis connection timed out after 10s", Fault.NOT_A_COUNTER),
        *((line, Fault.MALFORMED) for line in (b"x", b"x:1", b"x|c", b"x:|c", b"x:1|", b"x:1|C", b"x:one|c", b"|||")),
        *((line, Fault.MALFORMED) for line in (b"x:1|c|0.1", b"x:1|c|@0.1|@0.1", b"x:1|c|#a|#b", b"x:1|c|", b"x:1:|c")),
        *((line, Fault.MALFORMED) for line in (b"x:1e3|c", b"x:nan|c", b"x:0x10|c", b"x:1_0|c", b"x: 1|c", b"x:--1|c")),
        *((line, Fault.MALFORMED) for line in (b"x:1|c|#a:\xff", b"x:1|c|#a:\x00", b"x:1|c:2|c")),
        *((line, Fault.NAME) for line in (b":1|c", b"a\x00:1|c", b'a{b="c"}:1|c', b"\xc3:1|c")),
        *((line, Fault.NAME) for line in (b"a,t=v:1|c", b"a;t=v:1|c", b"a[t=v]:1|c", b"a:1|c|#:v", b'a:1|c|#t":v')),
        *((line, Fault.NEGATIVE) for line in (b"x:-1|c", b"x:-1.0|c", b"x:3:-1|c")),
        *((line, Fault.FRACTIONAL) for line in (b"x:0.5|c", b"x:-0.5|c", b"x:1.000000000000000000000001|c")),
        *((b"x:1|c|@" + rate, Fault.RATE) for rate in (b"0", b"1.1", b"-0.1", b"", b"nan", b"1e-999", b"0.1.1", b"x")),
        *(
            (line, Fault.TOO_LARGE)
            for line in (b"x:%d|c" % (MAX_COUNT + 1), b"x:1|c|@1e-30", b"x:" + b"9" * 4000 + b"|c")
        ),
        (b"x:1|c|#a:" + b"y" * 5000, Fault.TOO_LONG),
    ],
)
def test_dropped_line_has_a_reason(line: bytes, reason: Fault) -> None:
    assert parse(line) is reason


WORD = ascii_letters + digits + "_"
names = st.builds(str.__add__, st.sampled_from(WORD), st.text(WORD + ".-", max_size=20))
texts = st.text(st.characters(codec="utf-8", exclude_characters=",|\n"), max_size=10).filter(str.isprintable)
rates = st.decimals(min_value="0.0001", max_value="1", places=4)


@pytest.mark.slow
@given(names, st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.none() | rates, st.dictionaries(names, texts))
def test_generated_line_is_parsed(name: str, values: list[int], rate: object, tags: dict[str, str]) -> None:
    line = f"{name}:{':'.join(map(str, values))}|c"
    line += "" if rate is None else f"|@{rate}"
    line += "|#" + ",".join(f"{key}:{value}" for key, value in tags.items()) if tags else ""
    found = parse(line.encode())
    assert isinstance(found, StatsdCount)
    assert (found.name, dict(found.labels)) == (name, tags)
    assert found.labels == tuple(sorted(tags.items()))
    exact = sum(values) / (Fraction(1) if rate is None else Fraction(str(rate)))
    assert abs(Fraction(found.amount, SCALE) - exact) <= Fraction(sum(values), 2 * SCALE)


pieces = st.sampled_from(
    [b":", b"|", b"c", b"@", b"#", b",", b"0.1", b"-", b"1", b"name", b"_e{", b"e", b"\n", b"\xff"]
)


@given(st.binary(max_size=60) | st.lists(pieces | st.binary(max_size=3), max_size=15).map(b"".join))
@example(b"")
def test_random_bytes_never_raise(line: bytes) -> None:
    found = parse(line)
    if isinstance(found, StatsdCount):
        assert is_counter(found.name)
        assert 0 <= found.amount <= MAX_COUNT * SCALE
        assert all(name and name.isprintable() and value.isprintable() for name, value in found.labels)
    else:
        assert found in Fault
