"""A `World` with what the game asks of its subject."""

from countless.lab.simulation.world import World


class Tracked(World):
    """A `World` of numbered sites; see `game.Subject`."""

    @property
    def sent(self) -> int:
        return self.messages.total

    @property
    def scheme(self) -> str:
        return self.coordinator.scheme.name

    def step(self, site: int) -> int:
        """The step of the trigger in force, or 0 if it has none or reports every event."""
        step: int = getattr(self.coordinator.trigger_of(self.site(site).site_id), "step", 1)
        return step if step > 1 else 0

    def events_until_report(self, site: int) -> int:
        tracked = self.site(site)
        return tracked.next_at - tracked.count - 1
