"""StatsD lines, as programs in any language send them: `name:value|c|@rate|#tag:value,tag`.

The dialects are StatsD's own and DogStatsD's (several values in one line, tags, and sections that say where a line
comes from). Only counters are counted. Whatever a line is not counted for has a `Reason`, and nothing is guessed: a
name is never rewritten, because two counters might become one, and a section nobody knows might have been a rate.
"""

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

ONE = 10**18  # amounts are integers: this many stand for one event
MOST_LINE = 4096  # bytes: twice what the longest name with labels can have
MOST = (1 << 63) - 1  # events in one line: far above what anybody counts, far below what a frame can carry
_NAME = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TAG = re.compile(r"\w[\w./-]*")
_VALUE = re.compile(rb"([+-]?)0*(\d+)(?:\.(\d*))?")
_RATE = re.compile(rb"(\d{1,20}(\.\d{0,40})?|\.\d{1,40})(e[+-]?\d{1,2})?")  # short: it becomes an exact fraction
_OTHER_KINDS = frozenset({b"g", b"ms", b"h", b"s", b"d", b"m", b"kv"})
_ORIGINS = (b"c:", b"e:", b"T", b"card:")  # container, external data, time, cardinality: not about the count

Labels = tuple[tuple[str, str], ...]


class Reason(StrEnum):
    """Why something was not counted; the label of a metric."""

    NOT_A_COUNTER = "not a counter"  # gauges, timers, histograms, sets, events: nothing is wrong with them
    MALFORMED = "malformed"
    NAME = "name"  # of a counter or a tag, or all of them together too long
    NEGATIVE = "negative"
    FRACTIONAL = "fractional"
    RATE = "rate"
    TOO_LARGE = "too large"
    TOO_LONG = "too long"  # a line, or a datagram that would have to be cut
    TOO_MANY = "too many counters"


class Count(NamedTuple):
    """What a line counts. The amount is in units of 1/ONE of an event: a sample may stand for three and a third."""

    name: str
    labels: Labels
    amount: int


def is_name(name: str) -> bool:
    """Letters, digits, `_`, `.` and `-`; the first is none of the last two."""
    return _NAME.fullmatch(name.encode(errors="replace")) is not None


class _Refused(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


def parse(line: bytes) -> Count | Reason:
    """What one line says; never an exception, whatever the bytes are.

    >>> parse(b"page.views:3|c|@0.1|#country:cl,beta")
    Count(name='page.views', labels=(('beta', 'true'), ('country', 'cl')), amount=30000000000000000000)
    >>> parse(b"fuel.level:0.5|g")
    <Reason.NOT_A_COUNTER: 'not a counter'>
    """
    if len(line) > MOST_LINE:
        return Reason.TOO_LONG
    head, _, sections = line.partition(b"|")
    name, _, values = head.partition(b":")
    if name.startswith(b"_e{") or head == b"_sc":  # DogStatsD's events and service checks
        return Reason.NOT_A_COUNTER
    about = _about(sections)
    if isinstance(about, Reason):
        return about
    if not _NAME.fullmatch(name):
        return Reason.NAME
    try:
        amount = about.worth * (int(values) if values.isdigit() and len(values) < 19 else _sum(values))
    except _Refused as refused:
        return refused.reason
    return Count(name.decode(), about.labels, amount) if amount <= MOST * ONE else Reason.TOO_LARGE


class _About(NamedTuple):
    worth: int  # of one sampled event
    labels: Labels


@lru_cache(maxsize=4096)
def _about(sections: bytes) -> _About | Reason:
    """All that follows the value. It is the same in most lines of a program, and reading it is most of the work."""
    kind, *rest = sections.split(b"|")
    if kind != b"c":
        return Reason.NOT_A_COUNTER if kind in _OTHER_KINDS else Reason.MALFORMED
    rates = [section[1:] for section in rest if section.startswith(b"@")]
    tags = [section[1:] for section in rest if section.startswith(b"#")]
    known = len(rates) + len(tags) + sum(section.startswith(_ORIGINS) for section in rest)
    if len(rates) > 1 or len(tags) > 1 or known < len(rest):
        return Reason.MALFORMED
    try:
        return _About(_worth(rates[0]) if rates else ONE, _labels(tags[0]) if tags else ())
    except _Refused as refused:
        return refused.reason


def _sum(values: bytes) -> int:
    return sum(map(_whole, values.split(b":")))


def _whole(value: bytes) -> int:
    """A count: `3`, and `3.0` too, because some languages know no other numbers."""
    found = _VALUE.fullmatch(value)
    if not found:
        raise _Refused(Reason.MALFORMED)
    sign, digits, decimals = found.groups(b"")
    if decimals.strip(b"0"):
        raise _Refused(Reason.FRACTIONAL)
    if sign == b"-" and digits != b"0":
        raise _Refused(Reason.NEGATIVE)
    if len(digits) > 20:
        raise _Refused(Reason.TOO_LARGE)
    return int(digits)


def _worth(rate: bytes) -> int:
    """What one sampled event stands for, to the nearest 1/ONE."""
    if not _RATE.fullmatch(rate):
        raise _Refused(Reason.RATE)
    exact = Fraction(rate.decode())
    if not 0 < exact <= 1:
        raise _Refused(Reason.RATE)
    return round(ONE / exact)


def _labels(tags: bytes) -> Labels:
    """A tag without a value is `true`; of two values the later counts; the order is that of the names."""
    labels = {}
    try:
        text = tags.decode()
    except UnicodeDecodeError:
        raise _Refused(Reason.MALFORMED) from None
    if not text.isprintable():
        raise _Refused(Reason.MALFORMED)
    for tag in text.split(","):
        if tag:
            name, colon, value = tag.partition(":")
            if not _TAG.fullmatch(name):
                raise _Refused(Reason.NAME)
            labels[name] = value if colon else "true"
    return tuple(sorted(labels.items()))
