"""Keys: what a count belongs to, as a value. Names of counters, series and windows are made and read only here.

    requests                                          a counter, or a family
    requests{route="/a"}                              a series: a counter with labels
    requests@hour:490123                              a window: hours of UTC
    requests{route="/a"}@day,Europe/Berlin,6:20408    days that begin at six, of a series
    requests@hour                                     all windows together

The number of a window is that of `Calendar.period_at`. Frames have these texts; everything else has a `Key`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from countless.core.calendar import PERIODS, Calendar, calendar_of, require_anchor
from countless.core.family.messages import OVERFLOW
from countless.errors import InvalidParameter, ProtocolError

COUNTER = "counter"
FAMILY = "family"  # or a distribution
BUDGET = "budget"
COUNTED = (COUNTER, FAMILY)  # what sites count, perhaps in windows; in the order in which a client sends
ALL = -1  # as a period: all windows together

MAX_NAME_CHARS = 500  # a counter with its labels
NAME_RULE = f"1 to {MAX_NAME_CHARS} printable characters"
_IN_NO_COUNTER = frozenset(":|,;[]{}")  # the agent's lines have a meaning for them, or other dialects of StatsD
_LABEL = re.compile(r"\w[\w./-]*")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_WINDOWS = re.compile(
    rf"(?P<name>.+)@(?P<calendar>(?P<per>{'|'.join(PERIODS)})(?:,(?P<tz>[A-Za-z0-9/_+-]+),(?P<anchor>[0-9]{{1,2}}))?)"
    r"(?::(?P<period>[0-9]{1,12}))?",
    re.DOTALL,
)


class Key(NamedTuple):
    """A counter, family or budget, or one of its windows or periods.

    Sites and the coordinator may use different calendars by mistake: then their windows have different keys. Budgets
    have no calendar here, because it comes from the coordinator.
    """

    kind: str
    name: str  # with its labels
    calendar: str = ""  # empty without windows; else as in the text: "hour", "day,Europe/Berlin,6"
    period: int = 0

    def __str__(self) -> str:
        """The text in frames; of a budget its name, because frames have its period in a field of its own.

        >>> str(Key(COUNTER, "requests", "hour", 490123)), str(Key(COUNTER, "requests", "hour", ALL))
        ('requests@hour:490123', 'requests@hour')
        """
        if not self.calendar:
            return self.name
        return f"{self.name}@{self.calendar}" if self.period == ALL else f"{self.name}@{self.calendar}:{self.period}"

    @property
    def in_words(self) -> str:
        """For people.

        >>> Key(COUNTER, "requests").in_words, Key(COUNTER, "requests", "hour", 490123).in_words
        ('requests', 'requests (hour from 2025-11-29T19:00:00+00:00)')
        """
        if not self.is_window:
            return self.name
        calendar = parse_calendar(self.calendar)
        return f"{self.name} ({calendar.per} from {calendar.local_time(calendar.bounds(self.period)[0])})"

    @property
    def is_window(self) -> bool:
        return self.calendar != "" and self.period != ALL

    @property
    def root(self) -> str:
        """The counter without labels; of a budget the part before the first slash, which its template has too.

        >>> Key(COUNTER, 'requests{route="/a"}', "hour", 5).root, Key(BUDGET, "keys/7f3a").root
        ('requests', 'keys')
        """
        return self.name.partition("/" if self.kind == BUDGET else "{")[0]

    @property
    def overflow(self) -> "Key":
        """The key under which a series beyond the cap, or a window of it, is counted: the counter's overflow series.

        >>> str(Key(COUNTER, 'requests{route="/a"}', "hour", 5).overflow)
        'requests{overflow="true"}@hour:5'
        """
        return Key(self.kind, overflow_name(self.root), self.calendar, self.period)

    def of_part(self, part: str) -> "Key":
        """The site's own key of a series that is counted here, in an overflow series, as its `part`."""
        return Key(self.kind, part, self.calendar, self.period)

    @property
    def windows(self) -> "Key":
        """All windows together."""
        return Key(self.kind, self.name, self.calendar, ALL)

    def window(self, period: int) -> "Key":
        return Key(self.kind, self.name, self.calendar, period)


def key_of(kind: str, text: str) -> Key:
    """The key with this text. A calendar or a number that is spelt otherwise is a part of the name: see `is_plain`.

    >>> key_of(COUNTER, 'requests{route="/a"}@day,Europe/Berlin,6:20408')
    Key(kind='counter', name='requests{route="/a"}', calendar='day,Europe/Berlin,6', period=20408)
    >>> key_of(COUNTER, "requests@hour:007").name
    'requests@hour:007'
    """
    key = _parse(kind, text)
    return key if str(key) == text else Key(kind, text)


def _parse(kind: str, text: str) -> Key:
    """Even if it is spelt otherwise."""
    found = _WINDOWS.fullmatch(text) if "@" in text and kind != BUDGET else None
    if found is None:
        return Key(kind, text)
    name, calendar, per, tz, anchor, period = found.groups()
    if anchor is not None:
        calendar = _calendar_text(per, tz, int(anchor))
    return Key(kind, name, calendar, ALL if period is None else int(period))


def require_one(key: Key) -> None:
    """Raise InvalidParameter for all windows together, and for a window that is spelt otherwise."""
    right = _parse(key.kind, str(key))
    if right != key:
        raise InvalidParameter(key.kind, str(key), f"{right}, as this window is called")
    if key.calendar and not key.is_window:
        raise InvalidParameter(key.kind, str(key), f"one of its windows, such as {key.window(5)}")


def is_plain(name: str) -> bool:
    """False: it ends like the text of a window, or of all windows. Then no counter and no family can be called so."""
    return _WINDOWS.fullmatch(name) is None


# Calendars


def calendar_text(calendar: Calendar) -> str:
    """The `calendar` of a key.

    >>> calendar_text(Calendar("day", "Europe/Berlin", 6)), calendar_text(Calendar("hour"))
    ('day,Europe/Berlin,6', 'hour')
    """
    return _calendar_text(calendar.per, calendar.tz, calendar.anchor)


def _calendar_text(per: str, tz: str, anchor: int) -> str:
    usual = tz == "UTC" and anchor == require_anchor(None, per)
    return per if usual else f"{per},{tz},{anchor}"


def calendar_fields(text: str) -> tuple[str, str, int | None]:
    """`per`, `tz` and `anchor`.

    >>> calendar_fields("day,Europe/Berlin,6"), calendar_fields("hour")
    (('day', 'Europe/Berlin', 6), ('hour', 'UTC', None))
    """
    per, *rest = text.split(",")
    return (per, rest[0], int(rest[1])) if rest else (per, "UTC", None)


def parse_calendar(text: str) -> Calendar:
    """Raises InvalidParameter if this machine does not know the time zone, or the anchor is out of range."""
    return calendar_of(*calendar_fields(text))


# Names


def require_name(name: object, what: str) -> str:
    """Return `name`; raise `ProtocolError` unless it is 1 to MAX_NAME_CHARS printable characters."""
    if not is_valid_name(name):
        raise ProtocolError(f"{what} is {str(name)[:50]!r}: it must be {NAME_RULE}")
    return str(name)


def validate_name(name: object, parameter: str = "counter") -> str:
    """Return a name that a program gave; raise `InvalidParameter` where `require_name` raises `ProtocolError`."""
    if not is_valid_name(name):
        raise InvalidParameter(parameter, name, NAME_RULE)
    return str(name)


def is_valid_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()


def is_counter(name: object) -> bool:
    return is_valid_name(name) and _IN_NO_COUNTER.isdisjoint(str(name))


def validate_counter(name: object, parameter: str = "counter") -> str:
    """Return the name of a counter without labels that a program gave; raise InvalidParameter if it may not have it."""
    if not is_counter(name):
        raise InvalidParameter(parameter, name, f"{NAME_RULE}, and none of {' '.join(sorted(_IN_NO_COUNTER))}")
    return str(name)


def is_label(name: str) -> bool:
    """Letters, digits, `_`, `.`, `/` and `-`; the first is a letter, a digit or `_`."""
    return _LABEL.fullmatch(name) is not None


def series_name(counter: str, labels: dict[str, str]) -> str:
    """The name of a series (a counter with labels), the same for every order of the labels.

    >>> series_name("requests", {"route": "/a", "code": "200"})
    'requests{code="200",route="/a"}'
    """
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return f"{counter}{{{','.join(pairs)}}}"


def overflow_name(counter: str) -> str:
    """The series that receives the events of all label combinations beyond the cap."""
    return series_name(counter, {"overflow": "true"})


def counter_of(name: str) -> str | None:
    """The counter that a series belongs to, its overflow series included; None for a counter without labels.

    >>> counter_of('requests{route="/a"}'), counter_of('requests{overflow="true"}'), counter_of("requests")
    ('requests', 'requests', None)
    """
    counter, brace, _ = name.partition("{")
    return counter if brace and counter and name.endswith("}") else None


def counter_of_series(name: str) -> str | None:
    """As `counter_of`, but None for an overflow series.

    >>> counter_of_series('requests{route="/a"}'), counter_of_series('requests{overflow="true"}')
    ('requests', None)
    """
    counter = counter_of(name)
    return None if counter is None or name == overflow_name(counter) else counter


# Budgets: `keys/*` is a template, of all names that begin with `keys/`

_TEMPLATE = "/*"


def validate_budget(name: object, parameter: str = "budget") -> str:
    """Return the name of a budget; raise InvalidParameter if it may not have it. An empty key would be one of all who
    have none, without a word.
    """
    if validate_name(name, parameter).endswith("/"):
        raise InvalidParameter(parameter, name, "a name with a key behind its last slash")
    return str(name)


def is_template(name: str) -> bool:
    return name.endswith(_TEMPLATE)


def prefix_of_template(name: str) -> str:
    """
    >>> prefix_of_template("keys/*")
    'keys'
    """
    return name.removesuffix(_TEMPLATE)


def rule_of_fields(budget: str) -> str:
    """The rule that an operator makes for all budgets of a name with fields.

    >>> rule_of_fields("orgs/{org}/keys/{key}"), rule_of_fields("exports")
    ('orgs/*', 'exports')
    """
    start, brace, _ = budget.partition("{")
    if not brace:
        return validate_budget(budget)
    prefix, slash, rest = start.rpartition("/")
    if not slash or rest:
        raise InvalidParameter("budget", budget, "a name whose first field follows a slash, such as keys/{key}")
    return prefix + _TEMPLATE


def example_of_rule(rule: str) -> str:
    """A budget that follows it, for the question whether there is such a rule.

    >>> example_of_rule("keys/*"), example_of_rule("exports")
    ('keys/(ready)', 'exports')
    """
    return f"{prefix_of_template(rule)}/(ready)" if is_template(rule) else rule


def templates_of(name: str) -> Iterator[str]:
    """Those that stand for this name, the longest first.

    >>> list(templates_of("keys/a/b"))
    ['keys/a/*', 'keys/*']
    >>> list(templates_of("keys/"))
    []
    """
    while "/" in name and not name.endswith("/"):
        name = name.rpartition("/")[0]
        yield name + _TEMPLATE


# Labels of families: the part of a series after the name of the counter


def label_of_series(family: str, series: str) -> str:
    """
    >>> label_of_series("requests", 'requests{tenant="acme"}'), label_of_series("requests", "requests")
    ('{tenant="acme"}', '{}')
    """
    return OVERFLOW if series == overflow_name(family) else series.removeprefix(family) or "{}"


def series_of_label(family: str, label: str) -> str:
    """
    >>> series_of_label("requests", '{tenant="acme"}'), series_of_label("requests", OVERFLOW)
    ('requests{tenant="acme"}', 'requests{overflow="true"}')
    """
    return overflow_name(family) if label == OVERFLOW else family + label.removeprefix("{}")
