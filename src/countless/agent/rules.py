"""Rules for the windows of an agent's counters, such as `http.*=hour`; the first that matches decides."""

import tomllib
from collections.abc import Iterable
from fnmatch import translate
from pathlib import Path
from re import Pattern
from re import compile as compile_pattern
from typing import TypedDict

from countless.core.calendar import PERIODS, Per, require_calendar, require_per
from countless.errors import InvalidParameter

_NO_WINDOWS = "none"
_FORM = f"PATTERN=PER or PATTERN=PER,TZ,ANCHOR with PER one of {', '.join(PERIODS)}, {_NO_WINDOWS}"


class Windows(TypedDict):
    """Arguments of `client.counter`."""

    per: Per | None
    tz: str
    anchor: int | None


WITHOUT: Windows = {"per": None, "tz": "UTC", "anchor": None}


class WindowRules:
    """`*` in a pattern stands for any characters, `?` for one.

    >>> rules = WindowRules(["http.internal.*=none", "http.*=hour", "orders=day,Europe/Berlin,6"])
    >>> [rules.find(name)["per"] for name in ("http.internal.get", "http.get", "orders", "orders.new")]
    [None, 'hour', 'day', None]
    """

    def __init__(self, rules: Iterable[str] = ()) -> None:
        self._rules = [_parse(rule) for rule in rules]

    def find(self, counter: str) -> Windows:
        return next((windows for pattern, windows in self._rules if pattern.fullmatch(counter)), WITHOUT)


def _parse(rule: str) -> tuple[Pattern[str], Windows]:
    pattern, _, windows = rule.rpartition("=")
    fields = windows.split(",")
    per, tz, anchor = [*fields, "", ""][:3]
    if not pattern or len(fields) > 3 or (anchor and not anchor.isdecimal()):
        raise InvalidParameter("per", rule, _FORM)
    try:
        period = None if per == _NO_WINDOWS else require_per(per)
        found = Windows(per=period, tz=tz or "UTC", anchor=int(anchor) if anchor else None)
        require_calendar(found["per"], found["tz"], found["anchor"], "counters without windows")
    except InvalidParameter as error:
        raise InvalidParameter("per", rule, f"{_FORM}; {error}") from None
    return compile_pattern(translate(pattern)), found


def rules_in(file: Path) -> list[str]:
    """The list `per` of a TOML file: rules as on the command line."""
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidParameter("config", str(file), f"a readable TOML file ({error})") from None
    rules = settings.pop("per", [])
    if settings:
        raise InvalidParameter("config", next(iter(settings)), "made of: per")
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise InvalidParameter("per", rules, 'a list of rules in quotes, such as ["http.*=hour"]')
    return rules
