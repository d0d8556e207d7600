"""A `World` behind the interface of the game."""

from countless.core.estimator import Scheme
from countless.lab.simulation.world import World


class Tracked:
    """A `World` of numbered sites; see `game.Subject`."""

    def __init__(
        self, scheme: str | Scheme, sites: int, *, alpha: float, delta: float, seed: int, adversary: str = "adaptive"
    ) -> None:
        self.world = World(scheme, sites, alpha=alpha, delta=delta, seed=seed, adversary=adversary)
        self.scheme = self.world.coordinator.scheme.name
        self._sites = [self.world.site(site) for site in range(sites)]

    @property
    def estimate(self) -> float:
        return self.world.coordinator.published

    @property
    def sent(self) -> int:
        return self.world.messages.total

    @property
    def round(self) -> int:
        return self.world.round

    def step(self, site: int) -> int:
        """The step of the trigger in force, or 0 if it has none or reports every event."""
        site_id = self._sites[site].site_id
        step: int = getattr(self.world.coordinator.trigger_of(site_id), "step", 1)
        return step if step > 1 else 0

    def events_until_report(self, site: int) -> int:
        tracked = self._sites[site]
        return tracked.next_at - tracked.count - 1

    def add(self, site: int, n: int) -> None:
        self.world.add(site, n)
