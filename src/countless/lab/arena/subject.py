"""A world as something to attack (SPEC 7): the production Site and Coordinator behind the interface of the
game.
"""

from countless.core.estimator import Scheme
from countless.lab.simulation.world import World


class Tracked:
    """A `World` of numbered sites."""

    def __init__(
        self, scheme: str | Scheme, sites: int, *, alpha: float, delta: float, seed: int, adversary: str = "adaptive"
    ) -> None:
        self.world = World(scheme, sites, alpha=alpha, delta=delta, seed=seed, adversary=adversary)
        self.scheme = self.world.coordinator.scheme.name
        self._sites = [self.world.site(site) for site in range(sites)]

    @property
    def estimate(self) -> float:
        """What the public sees."""
        return self.world.coordinator.published

    @property
    def sent(self) -> int:
        """Messages so far."""
        return self.world.messages.total

    @property
    def round(self) -> int:
        """The number of the present round."""
        return self.world.round

    def step(self, site: int) -> int:
        """The step of the pace that the coordinator has in force, if that pace has one worth the name."""
        address = self._sites[site].site_id
        step: int = getattr(self.world.coordinator.trigger_of(address), "step", 1)
        return step if step > 1 else 0

    def events_until_report(self, site: int) -> int:
        """A site speaks when its count reaches `next_at`, and not before."""
        here = self._sites[site]
        return here.next_at - here.count - 1

    def add(self, site: int, n: int) -> None:
        """Events."""
        self.world.add(site, n)
