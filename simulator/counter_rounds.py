"""Rounds of counters: no site is in a round that its coordinator has not sent it, and no number is used twice.

After a restore from an older copy, a round of the coordinator is above every round that a site which has joined again
was in before. Rounds in which none of these sites was may run again: the coordinator cannot know them.
"""

from collections.abc import Iterable, Iterator

from countless.core.messages import SiteId
from countless.core.site import Site
from countless.core.site_states import CURRENT, DEPARTED
from countless.errors import InvariantBroken
from countless.server.kinds.counters import Counters
from countless.server.site_server import SiteServer
from simulator.process import Process


class CounterRounds:
    def __init__(self) -> None:
        self._lost: dict[tuple[str, SiteId], int] = {}  # by counter and site: the round it was in when the state went

    def on_restored(self, processes: Iterable[Process]) -> None:
        """A copy has taken the place of the state, and no site has connected yet."""
        for site in _sites_of(processes):
            key = site.counter, site.site_id
            self._lost[key] = max(site.round, self._lost.get(key, 0))

    def check(self, servers: Iterable[SiteServer], processes: Iterable[Process]) -> None:
        sites = list(_sites_of(processes))
        for server in servers:
            for name, counter in server.kind(Counters).trackers.items():
                coordinator = counter.coordinator
                state = coordinator.debug_state()
                present = {each: entry for each, entry in state.entries.items() if entry.presence is not DEPARTED}
                joined = {each: entry for each, entry in present.items() if entry.joined}
                for site in (each for each in sites if each.counter == name and each.site_id in joined):
                    self._check_site(site, coordinator.round)
                    is_current = joined[site.site_id].round_state is CURRENT and site.round == coordinator.round
                    if is_current and coordinator.round and site.trigger != coordinator.trigger_of(site.site_id):
                        raise InvariantBroken(f"{site} has a trigger of a lost round of {coordinator}")

    def _check_site(self, site: Site, round: int) -> None:
        lost = self._lost.get((site.counter, site.site_id), 0)
        if site.round > round or 0 < round <= lost:
            raise InvariantBroken(f"{site} was in round {lost}, and the coordinator uses {round} again")


def _sites_of(processes: Iterable[Process]) -> Iterator[Site]:
    for process in processes:
        yield from process.client.sites
