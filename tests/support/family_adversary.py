"""Traffic against the answers of a family: an adversary that sees the steps in force, and hides as much as they allow.

One site raises the total, round after round. The others hold back labels that are new, or one that they have in common,
or count nothing. With faults, sites join, leave and end; connections and the coordinator are lost. The sites, the
coordinator and their messages are those of `World`. What is not lost arrives before the next event, and then every
answer is checked beside the truth.
"""

from collections import Counter
from fractions import Fraction
from itertools import count
from math import inf, nextafter
from random import Random

from countless.core.family.site import FamilySite
from countless.core.messages import SiteId
from support.family_world import Broken, Case, World

HOT = SiteId(0)
LABELS = ["hot", "common", "middling"]  # which have large shares
MAX_FRESH = 40  # labels, in one go
MANY = 1_000_000
START_STEP = 10
MAX_ADDS = 10_000  # in one round


class Adversary:
    """`faults`: sites come and go, and messages are lost."""

    def __init__(self, seed: int, *, faults: bool, site: type[FamilySite] = FamilySite) -> None:
        self.rng = Random(seed)  # noqa: S311
        self.epsilon = Fraction(self.rng.choice([2, 5, 10]), 100)
        self.faults = faults
        sites = self.rng.choice([3, 5, 8])
        self.world = World(Case(sites=sites, epsilon=float(self.epsilon), cap=MANY), site=site)
        self.fresh = (f"label-{number}" for number in count())
        self.worst: dict[str, Fraction] = dict.fromkeys(("error", "missing", "label", "listed"), Fraction(0))
        start = int(START_STEP * sites / self.epsilon)
        for label, share in zip(LABELS, (0.3, 0.1, 0.6), strict=True):
            self._do("add", HOT, label, int(share * start))

    def run(self, rounds: int) -> None:
        """Raises Broken."""
        for _ in range(rounds):
            self._one_round()

    def _one_round(self) -> None:
        sites = self._counting()
        for site_id in self.rng.sample(sites, self.rng.choice([len(sites), len(sites) // 2])):
            self.rng.choice([self._hide_fresh, self._hide_fresh, self._hide_common])(site_id)
        self._check()
        if self.faults:
            self._fault()
            self._check()
        before, label = self.world.coordinator.steps, self.rng.choice(LABELS)
        for _ in range(MAX_ADDS):
            self._do("add", HOT, label, self.rng.choice(self.world.sites[HOT].steps[:2]))
            self._check()
            if self.world.coordinator.steps != before:
                return
        raise Broken(f"the steps stay at {before}")

    def _counting(self) -> list[SiteId]:
        return [each for each in self.world.sites if each not in self.world.ended]

    # Moves

    def _do(self, *action: object) -> None:
        self.world.act(action)
        self.world.deliver_all()

    def _hide_fresh(self, site_id: SiteId) -> None:
        """Labels that are new, none of them large enough for a report. So that all together are not either, or as if
        the site had forgotten what it held back before.
        """
        steps = self.world.sites[site_id].steps
        left = steps.total - 1 - self.rng.choice([0, self.world.held_back_total(site_id)])
        for _ in range(MAX_FRESH):
            room = min(steps.label - 1, left)
            if room < 1:
                return
            self._do("add", site_id, next(self.fresh), room)
            left -= room

    def _hide_common(self, site_id: SiteId) -> None:
        steps = self.world.sites[site_id].steps
        room = min(
            steps.label - 1 - self.world.held_back(site_id)["common"],
            steps.total - 1 - self.world.held_back_total(site_id),
        )
        if room > 0:
            self._do("add", site_id, "common", room)

    def _fault(self) -> None:
        others = [each for each in self._counting() if each != HOT]
        kinds = ["join", "kill", "lose connection", *(["leave", "end"] if len(others) > 1 else [])]
        kind = self.rng.choice(kinds)
        if kind in ("leave", "end"):
            self._do(kind, self.rng.choice(others))
        elif kind == "lose connection":
            self._lose_reports(self.rng.choice(self._counting()))
        else:
            self._do(kind)

    def _lose_reports(self, site_id: SiteId) -> None:
        step = self.world.sites[site_id].steps.label
        for label in ("common", next(self.fresh), "common"):
            self.world.act(("add", site_id, label, step))
        self._do("lose connection", site_id)

    # The answers beside the truth

    def _check(self) -> None:
        self.world.check()
        truth: Counter[str] = sum(self.world.truth.values(), Counter())
        total, answer = self.world.true_total, self.world.coordinator.total()
        if not answer.contains(total):
            raise Broken(f"{total} events: {answer}")
        self._note("error", abs(Fraction(answer.estimate) - total), self.epsilon * total)
        self._note("missing", Fraction(total - answer.lower), 2 * self.epsilon * total)
        for label, n in truth.items():
            each = self.world.coordinator.answer(label)
            if not each.contains(n):
                raise Broken(f"{label!r} was counted {n} times: {each}")
            self._note("label", Fraction(each.upper - each.lower), Fraction(3, 4) * self.epsilon * total)
        for label in LABELS:
            share = Fraction(truth[label], total)
            most_listed = Fraction(self.world.coordinator.answer(label).upper, answer.lower)
            least_not_listed = (share + Fraction(3, 4) * self.epsilon) / (1 - 2 * self.epsilon)
            for asked in (share, most_listed):
                self._check_top(nextafter(float(asked), 0), truth, total)
            self._check_top(nextafter(float(least_not_listed), inf), truth, total)

    def _check_top(self, asked: float, truth: Counter[str], total: int) -> None:
        share = Fraction(repr(asked))
        if not self.epsilon <= share <= 1:
            return
        listed = {str(each.label) for each in self.world.coordinator.top(asked).labels}
        if missing := {label for label, n in truth.items() if n >= share * total} - listed:
            raise Broken(f"{missing} have a share of {asked}, and are not listed")
        most_below = (Fraction(3, 4) + 2 * share) * self.epsilon
        for label in listed:
            self._note("listed", share - Fraction(truth[label], total), most_below)

    def _note(self, name: str, found: Fraction, bound: Fraction) -> None:
        if found > bound:
            raise Broken(f"{name}: {float(found)} is more than the bound {float(bound)}")
        if bound:
            self.worst[name] = max(self.worst[name], found / bound)
