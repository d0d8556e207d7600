"""Rules for the windows of an agent's counters, such as `http.*=hour`; the first that matches decides.

The file that has more of them also has the section for Envoy, which `countless.integrations.envoy.rules` reads.
"""

import tomllib
from collections.abc import Iterable
from fnmatch import translate
from pathlib import Path
from re import Pattern
from re import compile as compile_pattern
from typing import Any, NamedTuple, TypedDict

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


class AgentFile(NamedTuple):
    """The settings of a file. `envoy`: its section, if it has one."""

    per: list[str]
    envoy: dict[str, Any] | None


def read_agent_file(file: Path) -> AgentFile:
    """Read a TOML file with `per`, a list of rules as on the command line, and a section `envoy`."""
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidParameter("config", str(file), f"a readable TOML file ({error})") from None
    rules, envoy = settings.pop("per", []), settings.pop("envoy", None)
    if settings:
        raise InvalidParameter("config", next(iter(settings)), "made of: per, envoy")
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise InvalidParameter("per", rules, 'a list of rules in quotes, such as ["http.*=hour"]')
    if envoy is not None and not isinstance(envoy, dict):
        raise InvalidParameter("envoy", envoy, "a section: [envoy]")
    return AgentFile(rules, envoy)
