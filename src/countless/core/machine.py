"""The interface that the coordinators of counters, families and budgets share, for owners that send messages."""

from typing import Protocol, TypeVar

from countless.core.messages import SiteId

Up = TypeVar("Up", contravariant=True)
Down = TypeVar("Down")


class Machine(Protocol[Up, Down]):
    """A coordinator without I/O: every input returns the messages it causes. A rejected input changes nothing.

    How a site joins and leaves is not part of it, because what it then reports differs: a count, labels, or units.
    """

    def receive(self, site_id: SiteId, message: Up, /) -> list[tuple[SiteId, Down]]:
        """A message of a site that has joined."""

    def mark_unreachable(self, site_id: SiteId) -> list[tuple[SiteId, Down]]:
        """A site has timed out: do not wait for it. It may come back."""

    def give_up(self, site_id: SiteId) -> list[tuple[SiteId, Down]]:
        """A site has ended without leaving: what it has not reported will not come."""

    def recover(self) -> list[tuple[SiteId, Down]]:
        """Once after a restart: ask for what the saved state does not say."""

    def awaited(self, site_id: SiteId) -> int | None:
        """The first round, or the message, that a site was asked to answer and has not; None: no answer is awaited."""
