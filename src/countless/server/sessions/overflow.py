"""Labels beyond the cap: label values come from outside, and every series is a counter with its own coordinator.

A counter has at most `label_cap` labelled series, over all its sites together. Whoever brings one more is counted in
the counter's overflow series instead, without noticing: there it takes a seat of its own, as if it were one more site.
So the total over all series stays right, whatever the client does, and a label value too many costs what a site costs.
"""

from collections import Counter as Tally

from countless.core.messages import SiteId, SiteName
from countless.wire.names import overflow_name

_BETWEEN = "\n"  # names are printable: none of them contains this


def family_of(name: str) -> str | None:
    """The counter that a labelled series belongs to; None: it has no labels, or is an overflow series itself.

    >>> family_of('requests{route="/a"}'), family_of("requests"), family_of('requests{overflow="true"}')
    ('requests', None, None)
    """
    family, brace, _ = name.partition("{")
    return family if brace and name.endswith("}") and name != overflow_name(family) else None


def is_overflow(name: str) -> bool:
    """Whether this is a series in which others are counted."""
    return name == overflow_name(name.partition("{")[0])


class SeriesCounts:
    """How many series each counter has, and how often somebody brought one too many."""

    def __init__(self) -> None:
        self.overflowed: Tally[str] = Tally()
        self._sizes: Tally[str] = Tally()

    def add(self, name: str) -> None:
        """A series more."""
        family = family_of(name)
        if family is not None:
            self._sizes[family] += 1

    def remove(self, name: str) -> None:
        """A series less."""
        family = family_of(name)
        if family is not None:
            self._sizes[family] -= 1
            if not self._sizes[family]:
                del self._sizes[family]

    def size(self, family: str) -> int:
        """How many series it has."""
        return self._sizes[family]


def stand_in(home: SiteId, name: str) -> SiteId:
    """Who counts this series in the overflow series."""
    return SiteId(f"{home.site}{_BETWEEN}{name}", home.incarnation)


def spoken(counter: str, site_id: SiteId) -> tuple[str, SiteId]:
    """What a seat in a counter is to the site itself: the name it uses, and the life it is.

    >>> spoken("hits", SiteId("web", 1))
    ('hits', SiteId(site='web', incarnation=1))
    >>> spoken('hits{overflow="true"}', stand_in(SiteId("web", 1), 'hits{route="/a"}'))
    ('hits{route="/a"}', SiteId(site='web', incarnation=1))
    """
    site, between, name = str(site_id.site).partition(_BETWEEN)
    return (name, SiteId(site, site_id.incarnation)) if between else (counter, site_id)


def home_of(site: SiteName) -> str:
    """The name of the site itself."""
    return str(site).partition(_BETWEEN)[0]
