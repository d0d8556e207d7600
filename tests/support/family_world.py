"""A small world for families: sites, their coordinator and a faulty network, every step of which can be enumerated.

`Case` says what may happen, and how often. A world counts every event exactly, beside the sites.

| checked                                    | when                                                                  |
|--------------------------------------------|-----------------------------------------------------------------------|
| a site reports what has grown by its step  | in every state                                                        |
| no site has higher steps than the coordinator counts with, also counting steps on their way | in every state       |
| no label is counted twice                  | in every state                                                        |
| sums and widths: `FamilyCoordinator.check` | in every state                                                        |
| every label, the total and the top hold    | when no message is on its way; after a loss, when all have reconnected |
| no site is waited for, all have the steps  | the same                                                              |
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pickle import dumps, loads
from typing import Any, NamedTuple

from countless.core.answer import State
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import (
    OVERFLOW,
    DownMessage,
    LabelReport,
    Outbox,
    Resend,
    SetSteps,
    Totals,
    UpMessage,
)
from countless.core.family.rule import CertainSteps
from countless.core.family.site import FamilySite
from countless.core.messages import SiteId
from countless.errors import CountlessError

FAMILY = "f"
Action = tuple[Any, ...]


class Case(NamedTuple):
    """What may happen. Each number is how often, in one run."""

    sites: int = 1  # at the start
    joins: int = 1
    adds: int = 3
    labels: tuple[str, ...] = ("a",)
    batches: tuple[int, ...] = (1, 4)
    epsilon: float = 0.4
    cap: int = 10
    losses: int = 0
    repeats: int = 0
    overtakes: int = 0
    kills: int = 0  # of the coordinator
    restores: int = 0  # of the coordinator, with a copy of its state from before the last round began
    leaves: int = 0
    ends: int = 0  # of sites that do not leave; the coordinator gives them up
    timeouts: int = 0


class Leave(NamedTuple):
    sync: Totals


class Join(NamedTuple):
    sync: Totals


class Broken(AssertionError):
    """The protocol did something that it must not do."""


COUNTERS = ("joins", "adds", "losses", "repeats", "overtakes", "kills", "restores", "leaves", "ends", "timeouts")


class World:
    def __init__(
        self, case: Case, coordinator: type[FamilyCoordinator] = FamilyCoordinator, site: type[FamilySite] = FamilySite
    ) -> None:
        self.case, self.coordinator_class, self.site_class = case, coordinator, site
        fleet = [SiteId(number) for number in range(case.sites)]
        self.coordinator = coordinator(FAMILY, CertainSteps(case.epsilon), fleet=fleet)
        self.sites = {site_id: site(FAMILY, cap=case.cap) for site_id in fleet}
        self.truth: dict[SiteId, Counter[str]] = {site_id: Counter() for site_id in fleet}  # also of sites that ended
        self.sent: dict[SiteId, Counter[str]] = {site_id: Counter() for site_id in fleet}  # in reports
        self.sent_totals: Counter[SiteId] = Counter()
        self.up: dict[SiteId, list[UpMessage | Leave | Join]] = {site_id: [] for site_id in fleet}
        self.down: dict[SiteId, list[DownMessage]] = {site_id: [] for site_id in fleet}
        self.left = {name: getattr(case, name) for name in COUNTERS}
        self.ended: set[SiteId] = set()  # they count no more; some have not been removed by the coordinator yet
        self.given_up: set[SiteId] = set()
        self.totals: dict[SiteId, int] = {}  # of sites that were given up: what they have reported
        self.was_lost = False
        self.copy = self.last_saved = self.coordinator.saved_state
        self.was_restored = False

    def key(self) -> str:
        state = self.coordinator.saved_state, self.coordinator.debug_state()
        sites = [[getattr(site, slot) for slot in FamilySite.__slots__] for site in self.sites.values()]
        sent, on_their_way = (self.sent, self.sent_totals), (self.up, self.down)
        return repr((sites, sent, on_their_way, self.left, sorted(self.ended), self.was_lost, state, self._restoring()))

    def _restoring(self) -> tuple[Any, ...]:
        return (self.copy, self.was_restored) if self.case.restores else ()

    # What may happen

    def actions(self) -> Iterator[Action]:
        can = self.left
        for site_id in self.sites:
            for way in ("up", "down"):
                waiting = getattr(self, way)[site_id]
                if waiting:
                    yield ("deliver", way, site_id, 0)
                    if can["repeats"]:
                        yield ("repeat", way, site_id)
                    if can["losses"]:
                        yield ("lose", way, site_id)
                    if can["overtakes"]:
                        yield from (("deliver", way, site_id, place) for place in range(1, len(waiting)))
            if site_id in self.ended:
                continue
            if can["adds"]:
                for label in self.case.labels:
                    yield from (("add", site_id, label, n) for n in self.case.batches)
            if can["leaves"]:
                yield ("leave", site_id)
            if can["ends"]:
                yield ("end", site_id)
            if can["timeouts"]:
                yield ("time out", site_id)
        if can["joins"]:
            yield ("join",)
        if can["kills"]:
            yield ("kill",)
        if can["restores"]:
            yield ("restore",)

    def do(self, action: Action) -> None:
        self.act(action)
        if self.case.restores:
            before, self.last_saved = self.last_saved, self.coordinator.saved_state
            self.copy = before if self.coordinator.round > before.round else self.copy
        self.check()

    def act(self, action: Action) -> None:
        """As `do`, without a check."""
        name, *arguments = action
        getattr(self, "_" + name.replace(" ", "_"))(*arguments)

    def _use(self, counter: str) -> None:
        self.left[counter] -= 1

    def _add(self, site_id: SiteId, label: str, n: int) -> None:
        self._use("adds")
        self.truth[site_id][label] += n
        self._put_up(site_id, *self.sites[site_id].add(label, n))

    def _join(self) -> None:
        self._use("joins")
        site_id = SiteId(len(self.sites))
        self.sites[site_id] = self.site_class(FAMILY, cap=self.case.cap)
        self.truth[site_id], self.sent[site_id] = Counter(), Counter()
        self.up[site_id], self.down[site_id] = [], []
        self._connect(site_id)

    def _connect(self, site_id: SiteId) -> None:
        first, *rest = self.sites[site_id].resume()
        assert isinstance(first, Totals)
        self._put_up(site_id, Join(first), *rest)

    def _put_up(self, site_id: SiteId, *messages: UpMessage | Leave | Join) -> None:
        self.up[site_id] += messages
        for message in messages:
            sent = message.sync if isinstance(message, Leave | Join) else message
            self.sent_totals[site_id] = max(self.sent_totals[site_id], sent.total)
            if isinstance(sent, LabelReport):
                self.sent[site_id] |= Counter(dict(sent.counts))

    def _leave(self, site_id: SiteId) -> None:
        self._use("leaves")
        self._depart(site_id)

    def _depart(self, site_id: SiteId) -> None:
        *reports, last = self.sites[site_id].leave()
        assert isinstance(last, Totals)
        self.ended.add(site_id)
        self._put_up(site_id, *reports, Leave(last))

    def _end(self, site_id: SiteId) -> None:
        self._use("ends")
        self.ended.add(site_id)
        self.given_up.add(site_id)
        self.down[site_id].clear()
        member = self.coordinator.saved_state.members.get(site_id)
        self.truth[site_id] = Counter() if member is None else Counter(member.counts)
        self.totals[site_id] = 0 if member is None else member.total
        self._send(self.coordinator.give_up(site_id))

    def _time_out(self, site_id: SiteId) -> None:
        self._use("timeouts")
        self.was_lost = True
        self._send(self.coordinator.mark_unreachable(site_id))

    def _deliver(self, way: str, site_id: SiteId, place: int) -> None:
        if place:
            self._use("overtakes")
        self._arrive(site_id, getattr(self, way)[site_id].pop(place))

    def _repeat(self, way: str, site_id: SiteId) -> None:
        self._use("repeats")
        self._arrive(site_id, getattr(self, way)[site_id][0])

    def _lose(self, way: str, site_id: SiteId) -> None:
        self._use("losses")
        self.was_lost = True
        getattr(self, way)[site_id].pop(0)

    def _kill(self) -> None:
        """The coordinator ends and starts again. What was on its way is lost, and every site connects again."""
        self._use("kills")
        saved = self.coordinator.saved_state
        self.coordinator = self.coordinator_class(FAMILY, CertainSteps(self.case.epsilon), saved_state=saved)
        self._reconnect()

    def _restore(self) -> None:
        self._use("restores")
        self.was_restored = True
        epsilon = CertainSteps(self.case.epsilon)
        self.coordinator = self.coordinator_class(FAMILY, epsilon, saved_state=self.copy)
        self._reconnect()

    def _reconnect(self) -> None:
        for site_id in self.sites:
            self._lose_connection(site_id)

    def _lose_connection(self, site_id: SiteId) -> None:
        """What was on its way is lost, and the site connects again."""
        self.up[site_id].clear()
        self.down[site_id].clear()
        if site_id in self.given_up:
            self._send(self.coordinator.give_up(site_id))
            return
        self._connect(site_id)
        if site_id in self.ended:
            self._depart(site_id)

    def _arrive(self, site_id: SiteId, message: Any) -> None:
        coordinator, state = self.coordinator, self.coordinator.debug_state()
        if isinstance(message, SetSteps | Resend):
            if site_id not in self.given_up:
                self._put_up(site_id, *self.sites[site_id].receive(message))
                if site_id in self.ended:
                    self._depart(site_id)
        elif isinstance(message, Join):
            self._send(coordinator.join(site_id, message.sync))
        elif site_id not in state.members and site_id not in state.departed:  # it overtook the join
            self.was_lost = True
        elif isinstance(message, Leave):
            self._send(coordinator.leave(site_id, message.sync))
        else:
            self._send(coordinator.receive(site_id, message))

    def _send(self, outbox: Outbox) -> None:
        for site_id, message in outbox:
            if site_id not in self.given_up:
                self.down[site_id].append(message)

    # What must be true

    def check(self) -> None:
        coordinator = self.coordinator
        coordinator.check()
        members = coordinator.debug_state().members
        for site_id, site in self.sites.items():
            self._check_held_back(site_id, site)
            counted_with = members.get(site_id)
            if counted_with is None or site_id in self.ended:
                continue
            if self.was_restored and any(isinstance(each, Join) for each in self.up[site_id]):
                continue  # an older copy cannot know its steps: the answers are `learning`
            sent = [each for each in self.down[site_id] if isinstance(each, SetSteps) and each.round > site.round]
            for steps in [site.steps, *(each.steps for each in sent)]:
                if counted_with.at_least(steps) != counted_with:
                    raise Broken(f"{site} may have {steps}, the coordinator counts with {counted_with}")
        for label in self._labels():
            if coordinator.answer(label).lower > self._true(label):
                raise Broken(f"{label!r} was counted {self._true(label)} times: {coordinator.answer(label)}")
        if coordinator.total().lower > self.true_total:
            raise Broken(f"{self.true_total} events: {coordinator.total()}")

    def held_back(self, site_id: SiteId) -> Counter[str]:
        """By label: what a site has counted beyond what it has sent, not what it remembers of that."""
        site, counted = self.sites[site_id], Counter[str]()
        for label, count in self.truth[site_id].items():
            counted[site.home(label)] += count
        return counted - self.sent[site_id]

    def held_back_total(self, site_id: SiteId) -> int:
        return self.truth[site_id].total() - self.sent_totals[site_id]

    def _check_held_back(self, site_id: SiteId, site: FamilySite) -> None:
        held_back, total = self.held_back(site_id), self.held_back_total(site_id)
        if max(held_back.values(), default=0) >= site.steps.label or total >= site.steps.total:
            raise Broken(f"{site} holds back what it must report: {total} events, {dict(held_back)}")

    def _labels(self) -> set[str]:
        return {label for counts in self.truth.values() for label in counts}

    def _true(self, label: str) -> int:
        return sum(counts[label] for counts in self.truth.values())

    @property
    def true_total(self) -> int:
        return sum(self.totals.get(site_id, sum(counts.values())) for site_id, counts in self.truth.items())

    @property
    def quiet(self) -> bool:
        return not any(self.up.values()) and not any(self.down.values())

    def check_when_quiet(self) -> None:
        if self.was_lost:
            self._reconnect()
            self.deliver_all()
        coordinator, epsilon = self.coordinator, Fraction(repr(self.case.epsilon))
        if coordinator.state not in (State.EXACT, State.HOLDING):
            raise Broken(f"no message is on its way: {coordinator}")
        for site_id, site in self.sites.items():
            if site_id not in self.ended and site.steps != coordinator.steps:
                raise Broken(f"{site} has {site.steps}, not {coordinator.steps}")
            if site_id in self.ended and site_id not in coordinator.debug_state().departed:
                raise Broken(f"{site} has not departed")
        total, true_total = coordinator.total(), self.true_total
        if not total.contains(true_total):
            raise Broken(f"{true_total} events: {total}")
        if total.upper - total.lower > 2 * epsilon * true_total:
            raise Broken(f"the total is not within epsilon: {total}")
        overflow = coordinator.known.get(OVERFLOW, 0)
        for label in self._labels():
            answer, true = coordinator.answer(label), self._true(label)
            if not answer.contains(true):
                raise Broken(f"{label!r} was counted {true} times: {answer}")
            if answer.upper - answer.lower - overflow > Fraction(3, 4) * epsilon * true_total:
                raise Broken(f"{label!r} is not within epsilon: {answer}")
        if not overflow:
            self._check_top(Fraction(1, 2), true_total)

    def _check_top(self, share: Fraction, total: int) -> None:
        listed = {each.label for each in self.coordinator.top(float(share)).labels}
        epsilon = Fraction(repr(self.case.epsilon))
        for label in self._labels():
            true = self._true(label)
            if total and true >= share * total and label not in listed:
                raise Broken(f"{label!r} has {true} of {total}, and is not listed")
            if label in listed and true < (share - epsilon * (Fraction(3, 4) + 2 * share)) * total:
                raise Broken(f"{label!r} has {true} of {total}, and is listed")

    def deliver_all(self) -> None:
        for _ in range(1000):
            for site_id in list(self.sites):
                while self.down[site_id]:
                    self._arrive(site_id, self.down[site_id].pop(0))
                while self.up[site_id]:
                    self._arrive(site_id, self.up[site_id].pop(0))
            if self.quiet:
                return
        raise Broken("messages are sent without end")


class Found(NamedTuple):
    """How many states a search visited, and the first run that broke a rule."""

    states: int
    broken: str | None = None
    run: tuple[Action, ...] = ()


def _thaw(frozen: bytes) -> World:
    world: World = loads(frozen)  # noqa: S301 - our own bytes; many times faster than deepcopy
    return world


def search(start: World, most_states: int = 30_000) -> Found:
    """Visit every state that can be reached, the nearest first, until a rule is broken."""
    visited = {start.key()}
    frontier: list[tuple[bytes, tuple[Action, ...]]] = [(dumps(start, -1), ())]
    while frontier:
        reached = []
        for frozen, run in frontier:
            for action in list(_thaw(frozen).actions()):
                world = _thaw(frozen)
                try:
                    world.do(action)
                    key = world.key()
                    if key in visited:
                        continue
                    visited.add(key)
                    reached.append((dumps(world, -1), (*run, action)))
                    if world.quiet:
                        world.check_when_quiet()
                except (Broken, CountlessError) as broken:
                    return Found(len(visited), f"{type(broken).__name__}: {broken}", (*run, action))
        if len(visited) > most_states:
            raise AssertionError(f"more than {most_states} states in {start.case}")
        frontier = reached
    return Found(len(visited))
