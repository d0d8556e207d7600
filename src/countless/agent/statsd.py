"""The parser of StatsD lines: `name:value|c|@rate|#tag:value,tag`.

It reads StatsD's own dialect and DogStatsD's (several values in one line, tags, and sections about the origin). Only
counters are counted; every other line has a `Fault`. The parser does not guess: it never rewrites a name, because two
counters might become one, and it rejects a line with an unknown section, because that might be a rate.
"""

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from countless.wire.keys import is_counter, is_label

SCALE = 10**18  # amounts are integers in units of 1/SCALE of an event
MAX_LINE_BYTES = 4096  # twice the longest name with labels
MAX_COUNT = (1 << 63) - 1  # events in one line; a frame can carry far more
_VALUE = re.compile(rb"([+-]?)0*(\d+)(?:\.(\d*))?")
_RATE = re.compile(rb"(\d{1,20}(\.\d{0,40})?|\.\d{1,40})(e[+-]?\d{1,2})?")  # short: it becomes an exact fraction
_OTHER_KINDS = frozenset({b"g", b"ms", b"h", b"s", b"d", b"m", b"kv"})
_ORIGINS = (b"c:", b"e:", b"T", b"card:")  # container, external data, time, cardinality: not about the count

Labels = tuple[tuple[str, str], ...]


class Fault(StrEnum):
    """The reason why something was not counted; the label of a metric."""

    NOT_A_COUNTER = "not a counter"  # gauges, timers, histograms, sets, events: nothing is wrong with them
    MALFORMED = "malformed"
    NAME = "name"  # of a counter or a tag, or all of them together too long
    NEGATIVE = "negative"
    FRACTIONAL = "fractional"
    RATE = "rate"
    TOO_LARGE = "too large"
    TOO_LONG = "too long"  # a line, or a datagram that would have to be cut
    TOO_MANY = "too many counters"


class StatsdCount(NamedTuple):
    """The events of a line; a sampled line may stand for a fraction of an event."""

    name: str
    labels: Labels
    amount: int  # in units of 1/SCALE of an event


class _Rejected(Exception):
    def __init__(self, reason: Fault) -> None:
        self.reason = reason


def parse(line: bytes) -> StatsdCount | Fault:
    """Parse one line. Never raises, whatever the bytes are.

    >>> parse(b"page.views:3|c|@0.1|#country:cl,beta")
    StatsdCount(name='page.views', labels=(('beta', 'true'), ('country', 'cl')), amount=30000000000000000000)
    >>> parse(b"fuel.level:0.5|g")
    <Fault.NOT_A_COUNTER: 'not a counter'>
    """
    if len(line) > MAX_LINE_BYTES:
        return Fault.TOO_LONG
    head, _, sections = line.partition(b"|")
    name, _, values = head.partition(b":")
    if name.startswith(b"_e{") or head == b"_sc":  # DogStatsD's events and service checks
        return Fault.NOT_A_COUNTER
    suffix = _parse_suffix(sections)
    if isinstance(suffix, Fault):
        return suffix
    try:
        counter = name.decode()
    except UnicodeDecodeError:
        return Fault.NAME
    if not is_counter(counter):
        return Fault.NAME
    try:
        amount = suffix.weight * (int(values) if values.isdigit() and len(values) < 19 else _sum(values))
    except _Rejected as rejected:
        return rejected.reason
    return StatsdCount(counter, suffix.labels, amount) if amount <= MAX_COUNT * SCALE else Fault.TOO_LARGE


class _Suffix(NamedTuple):
    weight: int  # of one sampled event
    labels: Labels


@lru_cache(maxsize=4096)
def _parse_suffix(sections: bytes) -> _Suffix | Fault:
    """Everything after the value. It is the same in most lines of a program, so the cache saves most of the work."""
    kind, *rest = sections.split(b"|")
    if kind != b"c":
        return Fault.NOT_A_COUNTER if kind in _OTHER_KINDS else Fault.MALFORMED
    rates = [section[1:] for section in rest if section.startswith(b"@")]
    tags = [section[1:] for section in rest if section.startswith(b"#")]
    known = len(rates) + len(tags) + sum(section.startswith(_ORIGINS) for section in rest)
    if len(rates) > 1 or len(tags) > 1 or known < len(rest):
        return Fault.MALFORMED
    try:
        return _Suffix(_weight(rates[0]) if rates else SCALE, _labels(tags[0]) if tags else ())
    except _Rejected as rejected:
        return rejected.reason


def _sum(values: bytes) -> int:
    return sum(map(_whole, values.split(b":")))


def _whole(value: bytes) -> int:
    """A count: `3`, or `3.0`, because some languages have only floating-point numbers."""
    found = _VALUE.fullmatch(value)
    if not found:
        raise _Rejected(Fault.MALFORMED)
    sign, digits, decimals = found.groups(b"")
    if decimals.strip(b"0"):
        raise _Rejected(Fault.FRACTIONAL)
    if sign == b"-" and digits != b"0":
        raise _Rejected(Fault.NEGATIVE)
    if len(digits) > 20:
        raise _Rejected(Fault.TOO_LARGE)
    return int(digits)


def _weight(rate: bytes) -> int:
    """The weight of one sampled event, rounded to 1/SCALE."""
    if not _RATE.fullmatch(rate):
        raise _Rejected(Fault.RATE)
    exact = Fraction(rate.decode())
    if not 0 < exact <= 1:
        raise _Rejected(Fault.RATE)
    return round(SCALE / exact)


def _labels(tags: bytes) -> Labels:
    """A tag without a value is `true`; the last value of a tag wins; labels are sorted by name."""
    labels = {}
    try:
        text = tags.decode()
    except UnicodeDecodeError:
        raise _Rejected(Fault.MALFORMED) from None
    if not text.isprintable():
        raise _Rejected(Fault.MALFORMED)
    for tag in text.split(","):
        if tag:
            name, colon, value = tag.partition(":")
            if not is_label(name):
                raise _Rejected(Fault.NAME)
            labels[name] = value if colon else "true"
    return tuple(sorted(labels.items()))
