"""Windows for a counter, or a family, that has none: only while no site counts it, and from the next edge on."""

from collections.abc import Iterable
from shlex import quote

from countless.core.calendar import Calendar
from countless.core.messages import SiteId
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter
from countless.wire.keys import counter_of

MAX_NAMED = 5  # sites in an error


def begin_windows(name: str, per: str) -> str:
    """The command; series get windows with their counter."""
    return f"`countless counter set {quote(counter_of(name) or name)} --per {per}`"


def require_no_site(kind: str, name: str, rule: WindowRule, members: Iterable[SiteId]) -> None:
    """Raise InvalidParameter for members, which count without windows."""
    names = sorted({str(site_id.site) for site_id in members})
    if names:
        sites = [repr(each) for each in names]
        named = ", ".join(sites[:MAX_NAMED]) + (f" and {len(sites) - MAX_NAMED} more" if sites[MAX_NAMED:] else "")
        message = (
            f"{kind} {name!r} gets windows only while no site counts it: end {named} first, "
            f"or start them again with per={rule.per!r}"
        )
        raise InvalidParameter("per", rule.per, message=message)


def require_same_calendar(calendar: Calendar, rule: WindowRule | None) -> None:
    """Raise InvalidParameter unless a rule has the calendar of the present windows."""
    if rule is None or not rule.calendar.same_as(calendar):
        message = "per, tz and anchor can't be changed: delete the counter to get other windows"
        raise InvalidParameter("per", rule, message=message)
