"""Names of labelled series, and of their stand-ins in the overflow series.

Label values come from outside, and every series is a counter of its own. So a counter has at most `label_cap` labelled
series, over all its sites together; a series beyond the cap is counted in the counter's overflow series. There it has a
site id of its own, as if it were one more site: the total over all series stays right, and the client does not notice.
"""

from countless.core.messages import SiteId, SiteName
from countless.server.storage.base import MembershipKey
from countless.wire.keys import overflow_name
from countless.wire.windows import parse_window, shard_name

_SEPARATOR = "\n"  # names are printable, so no name contains it


def family_of(name: str) -> str | None:
    """The counter that a labelled series belongs to; None for a counter without labels and for an overflow series.

    >>> family_of('requests{route="/a"}'), family_of("requests"), family_of('requests{overflow="true"}')
    ('requests', None, None)
    """
    family, brace, _ = name.partition("{")
    return family if brace and name.endswith("}") and name != overflow_name(family) else None


def counter_of(name: str) -> str | None:
    """The counter that a labelled series, or an overflow series, belongs to; None for a counter without labels.

    >>> counter_of('requests{route="/a"}'), counter_of('requests{overflow="true"}'), counter_of("requests")
    ('requests', 'requests', None)
    """
    counter, brace, _ = name.partition("{")
    return counter if brace and counter and name.endswith("}") else None


def overflow_home(name: str) -> str:
    """The overflow series, or its window, in which a series or a window of a series is counted.

    >>> overflow_home('requests{route="/a"}'), overflow_home('requests{route="/a"}@hour:5')
    ('requests{overflow="true"}', 'requests{overflow="true"}@hour:5')
    """
    window = parse_window(name)
    if window is None:
        return overflow_name(str(family_of(name)))
    return str(window._replace(series=overflow_name(str(family_of(window.series)))))


def is_overflow(name: str) -> bool:
    """Also of a window."""
    series = shard_name(name)
    return series == overflow_name(series.partition("{")[0])


def overflow_site_id(site_id: SiteId, name: str) -> SiteId:
    """The site id under which the overflow series counts the series `name` of a site."""
    return SiteId(f"{site_id.site}{_SEPARATOR}{name}", site_id.incarnation)


def client_key(counter: str, site_id: SiteId) -> MembershipKey:
    """The counter name and site id that the client itself uses for a site id of a counter.

    >>> client_key("hits", SiteId("web", 1))
    ('hits', SiteId(site='web', incarnation=1))
    >>> client_key('hits{overflow="true"}', overflow_site_id(SiteId("web", 1), 'hits{route="/a"}'))
    ('hits{route="/a"}', SiteId(site='web', incarnation=1))
    """
    site, separator, name = str(site_id.site).partition(_SEPARATOR)
    return (name, SiteId(site, site_id.incarnation)) if separator else (counter, site_id)


def site_of(site: SiteName) -> str:
    """The name of the site, also if `site` stands for one of its series in an overflow series."""
    return str(site).partition(_SEPARATOR)[0]
