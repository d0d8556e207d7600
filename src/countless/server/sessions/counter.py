"""One counter of the service: a coordinator of the core, what it has cost, and the answer the public may see.

The public sees an answer only when it is on the disk: a total that was shown and then forgotten would fall.
"""

import asyncio
from math import ceil, log
from time import time
from typing import Any, NamedTuple

from countless.core.answer import Answer, State
from countless.core.coordinator import Coordinator, Outbox, PersistentState
from countless.core.estimator import RoundContext, Scheme
from countless.planning.deterministic import plan_deterministic
from countless.planning.failure_budget import round_eta
from countless.randomness import SystemRandom
from countless.schemes.auto import Auto
from countless.schemes.planned import PlannedScheme
from countless.schemes.registry import scheme_named
from countless.server.sessions.overflow import home_of
from countless.server.storage.base import Config, CounterFields

MIN_SITES_TO_PLAN = (
    32  # with fewer sites, traffic that reacts leaves `auto` deterministic (`countless plan`): no plan is needed
)


class Traffic:
    """Messages and bytes of one counter. Bytes are its share of the frames, which counters travel in together."""

    __slots__ = ("began", "counted_before", "down", "down_bytes", "up", "up_bytes")

    def __init__(self, counted_before: int) -> None:
        self.began = time()  # a restart forgets what was spent: all of this is since then
        self.counted_before = counted_before
        self.up = self.down = 0
        self.up_bytes = self.down_bytes = 0.0


class PlanKey(NamedTuple):
    """The part of a `Case` on which plans depend: counters that share it share the work."""

    scheme: str
    adversary: str
    sites: int
    alpha: float
    eta: float


class Counter:
    """A coordinator and what the service keeps beside it."""

    def __init__(self, name: str, config: Config, saved_state: PersistentState | None = None) -> None:
        self.name = name
        self.config = config
        self.coordinator = Coordinator(
            name, build_scheme(config), SystemRandom(), alpha=config.alpha, delta=config.delta, saved_state=saved_state
        )
        self.departed = saved_state.departed if saved_state else 0
        self.recovering = saved_state is not None  # restarted, and not everybody has answered yet
        self.planned_for: tuple[int, int] | None = None  # the shape for which plans have been thought of
        self.traffic = Traffic(self.coordinator.known_total)
        self.published_answer = self.coordinator.answer
        self.changed = asyncio.Event()

    def reconfigured(self, config: Config) -> "Counter":
        """The same counter under other rules: it goes on from what is known, and asks everybody."""
        after = Counter(self.name, config, self.coordinator.saved_state)
        after.traffic, after.published_answer, after.changed, after.recovering = (
            self.traffic,
            self.published_answer,
            self.changed,
            False,
        )
        return after

    def recover(self) -> Outbox:
        """After a restart."""
        return self.coordinator.recover()

    def publish(self, answer: Answer) -> None:
        """The answer is on the disk: let it be seen."""
        if answer != self.published_answer:
            self.published_answer = answer
            self.changed.set()
            self.changed = asyncio.Event()
        if answer.state is not State.LEARNING:
            self.recovering = False

    @property
    def fields(self) -> CounterFields:
        """What is saved of this counter beside its config and the counts of its sites."""
        return CounterFields(self.coordinator.round, self.coordinator.published, self.departed)

    @property
    def plan_version(self) -> tuple[int, int]:
        """Round and sites: while these are the same, so is the outlook."""
        return self.coordinator.round, self.coordinator.sites

    def next_plan(self) -> tuple[PlanKey, RoundContext] | None:
        """What to plan ahead, if any plan would be of use. Sites are rounded up, so that a few more change nothing."""
        if not isinstance(self.coordinator.scheme, Auto | PlannedScheme):
            return None
        context = self.coordinator.next_context
        if (
            context.sites < MIN_SITES_TO_PLAN
            and self.config.scheme == Auto.name
            and self.config.adversary != "oblivious"
        ):
            return None
        sites = round_up_sites(context.sites)
        eta = round_eta(context.delta, context.round)
        key = PlanKey(self.config.scheme, self.config.adversary, sites, context.alpha, eta)
        return key, context._replace(sites=sites, counts=(), running=None)

    def operator_view(self) -> dict[str, Any]:
        """Everything but the dice themselves."""
        answer, traffic = self.published_answer, self.traffic
        return {
            "alpha": answer.alpha,
            "delta": answer.delta,
            "adversary": self.config.adversary,
            "configured_scheme": self.config.scheme,
            "label_cap": self.config.label_cap,
            "scheme": answer.scheme,
            "round": answer.round,
            "sites": answer.sites,
            "silent": sorted({home_of(site) for site in answer.silent}),
            "known": self.coordinator.known_total,
            "messages": {"up": traffic.up, "down": traffic.down},
            "bytes": {"up": round(traffic.up_bytes), "down": round(traffic.down_bytes)},
            "messages_to_double": self._messages_to_double(),
        }

    def _messages_to_double(self) -> int:
        rate = getattr(self.coordinator.plan, "messages_per_efold", None)
        if rate is None:
            rate = plan_deterministic(max(1, self.published_answer.sites), self.config.alpha).messages_per_efold
        return ceil(rate * log(2))


def build_scheme(config: Config) -> Scheme:
    """The scheme of a counter. None of them thinks while messages wait: plans are worked out ahead."""
    return scheme_named(config.scheme, config.adversary, may_block=False)


def round_up_sites(sites: int) -> int:
    """The next number with four significant bits: at most an eighth more.

    >>> [rounded_up(sites) for sites in (1, 15, 17, 100, 1000)]
    [1, 15, 18, 104, 1024]
    """
    unit = 1 << max(0, sites.bit_length() - 4)
    return -(-sites // unit) * unit
