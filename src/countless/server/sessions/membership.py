"""Seats: where in which counter a site is counted under a name that it uses.

Nearly always in the counter of that name, under its own address. A labelled series beyond the cap sits in the overflow
series instead, under an address that stands for it (`overflow.py`).
"""

from collections.abc import Callable, Iterator

from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.server.sessions.counter import Counter
from countless.server.sessions.overflow import SeriesCounts, family_of, is_overflow, stand_in
from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.storage.base import Config
from countless.wire.names import overflow_name


class Membership:
    """Knows the counters and their families; changes nothing but the tally of overflows."""

    def __init__(self, settings: Settings, counters: dict[str, Counter], families: SeriesCounts) -> None:
        self._settings = settings
        self._counters = counters
        self._families = families

    def rules(self, family: str | None) -> Config:
        """Series have the rules of the counter they belong to, or else those of the settings."""
        counter = self._counters.get(family or "")
        return counter.config if counter else self._settings.defaults

    def require_room(self, name: str) -> None:
        """For one more counter."""
        if len(self._counters) >= self._settings.max_counters:
            raise InvalidParameter("counter", name, f"one of at most {self._settings.max_counters} (max_counters)")
        if self._is_beyond_cap(name):
            cap = self.rules(family_of(name)).label_cap
            raise InvalidParameter("counter", name, f"one of at most {cap} (label_cap)")

    def _is_beyond_cap(self, name: str) -> bool:
        family = family_of(name)
        return family is not None and self._families.size(family) >= self.rules(family).label_cap

    def offer(self, session: Session, name: str, create: Callable[[str, Config], Counter]) -> tuple[Counter, SiteId]:
        """For a site that names a counter; one that does not exist is created."""
        if name in session.memberships:
            return self.of(session, name)
        if len(session.memberships) + len(session.left) >= self._settings.max_counters_per_site:
            raise InvalidParameter("counter", name, "one of fewer (max_counters_per_site)")
        if name in self._counters:
            return self._counters[name], session.site_id
        family = family_of(name)
        if family is None or not self._is_beyond_cap(name):
            return create(name, self.rules(family)), session.site_id
        overflow = overflow_name(family)
        counter = self._counters.get(overflow) or create(overflow, self.rules(family))
        if counter.coordinator.answer.sites >= self._settings.max_sites:
            raise InvalidParameter("counter", name, f"one of at most {self._settings.max_sites} beyond the label cap")
        self._families.overflowed[family] += 1
        return counter, stand_in(session.site_id, name)

    def of(self, session: Session, name: str) -> tuple[Counter, SiteId]:
        """Of a site that has joined under this name."""
        site_id = session.memberships[name]
        if site_id is session.site_id:
            return self._counters[name], site_id
        return self._counters[overflow_name(str(family_of(name)))], site_id

    def all(self, session: Session) -> Iterator[tuple[str, Counter, SiteId]]:
        """Every seat of a site, with the name it uses."""
        for name in sorted(session.memberships):
            yield name, *self.of(session, name)

    def names(self, session: Session, counter: Counter) -> list[str]:
        """Under which names a site is counted in a counter: one, but for overflow series."""
        if is_overflow(counter.name):
            return [name for name, each, _ in self.all(session) if each is counter]
        return [counter.name] if session.memberships.get(counter.name) is session.site_id else []
