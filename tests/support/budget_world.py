"""A small world for budgets: sites, their coordinator and a faulty network, every step of which can be enumerated.

A world is frozen to a tuple, so a search can visit each state once. `Case` says what may happen, and how often.

| checked                         | when                                                                              |
|---------------------------------|-----------------------------------------------------------------------------------|
| never more than the limit       | in every state; after a reset, of what was spent since it was complete            |
| a site's limit is saved         | in every state: also counting grants on their way                                 |
| every request is decided        | when no message is on its way; after a loss, when every site has reconnected      |
| no early refusal                | the same; without holds, also when the coordinator sends a refusal                |
"""

from collections.abc import Iterator
from copy import copy
from operator import attrgetter
from typing import Any, NamedTuple

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.holders import CURRENT, GIVEN_UP, Holder, Holders
from countless.core.budget.messages import Ask, BudgetId, DownMessage, Exhausted, Grant, Outbox
from countless.core.budget.site import BudgetSite, Verdict
from countless.core.budget.state import PersistentState
from countless.core.messages import SiteId

BUDGET = BudgetId("b")
Action = tuple[Any, ...]
Key = tuple[Any, ...]


class Case(NamedTuple):
    """What may happen. Each number is how often, in one run."""

    sites: int = 2
    limit: int = 2
    slack: float = 0.0
    requests: int = 3  # in all; a site with a waiting request makes no other
    weights: tuple[int, ...] = (1,)
    holds: int = 0  # how many of the requests may be reservations
    losses: int = 0
    repeats: int = 0
    overtakes: int = 0
    reconnects: int = 0  # before the end; a loss is always followed by one at the end
    kills: int = 0  # of the coordinator, between any two steps
    leaves: int = 0
    ends: int = 0  # of sites that hand in nothing
    timeouts: int = 0
    early_percent: int = 0
    limits: tuple[int, ...] = ()  # to which the limit may be set, one after the other
    resets: int = 0
    sends_before_saving: bool = False  # a mutant: a kill finds the state before the last step


class Leave(NamedTuple):
    spent: int


class Broken(AssertionError):
    """The protocol did something that it must not do."""


_COUNTERS = (
    "requests", "holds", "losses", "repeats", "overtakes", "reconnects", "kills", "leaves", "ends", "timeouts",
    "resets",
)  # fmt: skip
_SITE = tuple(slot for slot in BudgetSite.__slots__ if slot not in ("budget", "early_percent"))
_HOLDER = tuple(Holder.__slots__)
_COORDINATOR = (
    *("limit", "round", "_slack_units", "_forgiven", "_gone", "_fresh", "_refused_from", "_share", "_share_holders"),
    "_resetting",
)
_site_values, _holder_values = attrgetter(*_SITE), attrgetter(*_HOLDER)
_coordinator_values = attrgetter(*_COORDINATOR)
IDS = tuple(SiteId(number) for number in range(8))


class World:
    def __init__(
        self,
        case: Case,
        coordinator: type[BudgetCoordinator] = BudgetCoordinator,
        site: type[BudgetSite] = BudgetSite,
    ) -> None:
        self.case = case
        self.coordinator_class = coordinator
        self.site_class = site
        self.coordinator = coordinator(BUDGET, case.limit, slack=case.slack)
        self.saved = self.coordinator.saved_state
        self.sites = [site(BUDGET, early_percent=case.early_percent) for _ in range(case.sites)]
        self.requests: list[tuple[int, bool]] = [(0, False)] * case.sites  # weight and kind of the one that waits
        self.ended = [False] * case.sites
        self.up: list[tuple[Ask | Leave, ...]] = [()] * case.sites
        self.down: list[tuple[DownMessage, ...]] = [()] * case.sites
        self.left = [getattr(case, name) for name in _COUNTERS]  # how often each thing may still happen
        self.limit_changes = 0
        self.spent_before_reset = 0  # in truth, when the last reset was complete

    # Frozen and thawed

    def freeze(self) -> Key:
        coordinator = self.coordinator
        return (
            tuple(_site_values(site) for site in self.sites),
            tuple(self.requests),
            tuple(self.ended),
            tuple(self.up),
            tuple(self.down),
            tuple(self.left),
            self.limit_changes,
            self.spent_before_reset,
            _coordinator_values(coordinator),
            tuple((site_id, _holder_values(holder)) for site_id, holder in coordinator._holders.items()),
            tuple(coordinator._waiting),
            tuple(sorted(coordinator._recalled)),
            tuple(coordinator._departed),
            self.saved,
        )

    @classmethod
    def thaw(cls, origin: "World", key: Key) -> "World":
        world = cls.__new__(cls)
        world.case, world.coordinator_class, world.site_class = (
            origin.case,
            origin.coordinator_class,
            origin.site_class,
        )
        sites, requests, ended, up, down, left, world.limit_changes, world.spent_before_reset, *rest = key
        values, holders, waiting, recalled, departed, world.saved = rest
        world.sites = []
        for site_values in sites:
            site = world.site_class.__new__(world.site_class)
            site.budget, site.early_percent = BUDGET, world.case.early_percent
            for name, value in zip(_SITE, site_values, strict=True):
                setattr(site, name, value)
            world.sites.append(site)
        world.requests, world.ended, world.left = list(requests), list(ended), list(left)
        world.up, world.down = list(up), list(down)
        world.coordinator = coordinator = copy(origin.coordinator)  # a new one would take three times as long
        coordinator._holders = Holders()
        for name, value in zip(_COORDINATOR, values, strict=True):
            setattr(coordinator, name, value)
        for site_id, holder_values in holders:
            holder = Holder()
            for name, value in zip(_HOLDER, holder_values, strict=True):
                setattr(holder, name, value)
            coordinator._holders.add(site_id, holder)
        coordinator._waiting = dict.fromkeys(waiting)
        coordinator._recalled = set(recalled)
        coordinator._departed = dict.fromkeys(departed)
        return world

    # What may happen

    def actions(self) -> Iterator[Action]:
        case = self.case
        can = dict(zip(_COUNTERS, self.left, strict=True))
        for number, site in enumerate(self.sites):
            up, down = self.up[number], self.down[number]
            if up:
                yield ("up", number, 0)
                if can["losses"]:
                    yield ("lose up", number)
                if can["repeats"]:
                    yield ("repeat up", number)
                if can["overtakes"]:
                    for place in range(1, len(up)):
                        yield ("up", number, place)
            if down:
                yield ("down", number, 0)
                if can["losses"]:
                    yield ("lose down", number)
                if can["repeats"]:
                    yield ("repeat down", number)
                if can["overtakes"]:
                    for place in range(1, len(down)):
                        yield ("down", number, place)
            if self.ended[number]:
                continue
            if site.held:
                yield ("settle", number, 0)
                yield ("settle", number, site.held)
            if can["requests"] and not self.requests[number][0]:
                for weight in case.weights:
                    yield ("take", number, weight)
                    if can["holds"] and not site.held:
                        yield ("reserve", number, weight)
            if can["reconnects"] and site.seq:
                yield ("reconnect", number)
            if can["leaves"]:
                yield ("leave", number)
            if can["ends"]:
                yield ("end", number)
            if can["timeouts"]:
                yield ("time out", number)
        if can["kills"]:
            yield ("kill",)
        if self.limit_changes < len(case.limits):
            yield ("set limit", case.limits[self.limit_changes])
        if can["resets"]:
            yield ("reset",)

    def do(self, action: Action) -> None:
        name, *arguments = action
        spent, forgiven = sum(site.spent for site in self.sites), self.coordinator.forgiven
        getattr(self, "_" + name.replace(" ", "_"))(*arguments)
        if self.coordinator.forgiven > forgiven:
            self.spent_before_reset = spent
        self._check()

    def _use(self, counter: str) -> None:
        self.left[_COUNTERS.index(counter)] -= 1

    def _used(self, counter: str) -> bool:
        return bool(self.left[_COUNTERS.index(counter)] < getattr(self.case, counter))

    def _request(self, number: int, weight: int, hold: bool) -> None:
        site = self.sites[number]
        taken = site.reserve(weight) if hold else site.take(weight)
        self.requests[number] = (weight, hold) if taken.verdict is Verdict.WAITING else (0, False)
        self.up[number] += taken.messages

    def _take(self, number: int, weight: int) -> None:
        self._use("requests")
        self._request(number, weight, False)

    def _reserve(self, number: int, weight: int) -> None:
        self._use("requests")
        self._use("holds")
        self._request(number, weight, True)

    def _settle(self, number: int, used: int) -> None:
        site = self.sites[number]
        self.up[number] += site.settle(site.held, used)
        self._repeat_request(number)

    def _up(self, number: int, place: int) -> None:
        if place:
            self._use("overtakes")
        message = self.up[number][place]
        self.up[number] = self.up[number][:place] + self.up[number][place + 1 :]
        self._to_coordinator(number, message)

    def _repeat_up(self, number: int) -> None:
        self._use("repeats")
        self._to_coordinator(number, self.up[number][0])

    def _lose_up(self, number: int) -> None:
        self._use("losses")
        self.up[number] = self.up[number][1:]

    def _down(self, number: int, place: int) -> None:
        if place:
            self._use("overtakes")
        message = self.down[number][place]
        self.down[number] = self.down[number][:place] + self.down[number][place + 1 :]
        self._to_site(number, message)

    def _repeat_down(self, number: int) -> None:
        self._use("repeats")
        self._to_site(number, self.down[number][0])

    def _lose_down(self, number: int) -> None:
        self._use("losses")
        self.down[number] = self.down[number][1:]

    def _to_site(self, number: int, message: DownMessage) -> None:
        if self.ended[number]:
            return
        self.up[number] += self.sites[number].receive(message)
        self._repeat_request(number)

    def _repeat_request(self, number: int) -> None:
        weight, hold = self.requests[number]
        if weight:
            self._request(number, weight, hold)

    def _to_coordinator(self, number: int, message: Ask | Leave) -> None:
        if isinstance(message, Leave):
            self._send(self.coordinator.leave(IDS[number], message.spent))
        else:
            self._send(self.coordinator.receive(IDS[number], message))

    def _send(self, outbox: Outbox) -> None:
        if not self.case.sends_before_saving:
            self.saved = self.coordinator.saved_state
        for site_id, message in outbox:
            if isinstance(message, Exhausted) and not self.case.holds:
                self._check_refusal(message.weight)
            if not self.ended[int(site_id.site)]:
                self.down[int(site_id.site)] += (message,)

    def _reconnect(self, number: int) -> None:
        """A new connection. What is on its way on the old one may arrive or not."""
        self._use("reconnects")
        self._send(self.coordinator.join(IDS[number], self.sites[number].resend()))

    def _kill(self) -> None:
        self._use("kills")
        saved: PersistentState = self.saved
        self.coordinator = self.coordinator_class(BUDGET, 1, slack=self.case.slack, saved_state=saved)
        self._send(self.coordinator.recover())
        self.saved = self.coordinator.saved_state

    def _leave(self, number: int) -> None:
        self._use("leaves")
        self.ended[number] = True
        self.requests[number] = (0, False)
        self.down[number] = ()
        self.up[number] += (Leave(self.sites[number].close()),)

    def _end(self, number: int) -> None:
        """The site is killed, and its coordinator finds out."""
        self._use("ends")
        self.ended[number] = True
        self.requests[number] = (0, False)
        self.down[number] = ()
        self._send(self.coordinator.give_up(IDS[number]))

    def _time_out(self, number: int) -> None:
        self._use("timeouts")
        self._send(self.coordinator.mark_unreachable(IDS[number]))

    def _set_limit(self, limit: int) -> None:
        self.limit_changes += 1
        self._send(self.coordinator.set_limit(limit))

    def _reset(self) -> None:
        self._use("resets")
        self._send(self.coordinator.reset())

    # What must be true

    def _check(self) -> None:
        coordinator, case = self.coordinator, self.case
        cap = max(case.limit, *case.limits) if case.limits else case.limit
        admitted = sum(site.used for site in self.sites) - self.spent_before_reset
        if admitted > cap:
            raise Broken(f"{admitted} units admitted, the limit is {cap}")
        if case.sends_before_saving:
            return
        if coordinator.free < 0 and not case.limits:
            raise Broken(f"limits of {coordinator._holders.limits} units granted: {coordinator}")
        for number, site in enumerate(self.sites):
            holder = coordinator._holders.get(IDS[number])
            if holder is None or self.ended[number]:
                continue
            grants = [m.limit for m in self.down[number] if isinstance(m, Grant) and m.round >= site.round]
            if max([site.limit, *grants]) > holder.limit:
                raise Broken(f"site {number} may spend {max([site.limit, *grants])}, saved is {holder}")

    def _left(self) -> int:
        """The units neither spent nor held, nor at sites that were given up or did not answer."""
        lost = sum(
            holder.limit - self.sites[int(site_id.site)].used
            for site_id, holder in self.coordinator._holders.items()
            if holder.state is not CURRENT
        )
        forgiven = self.coordinator.forgiven
        return self.coordinator.limit + forgiven - sum(site.used for site in self.sites) - lost

    def _check_refusal(self, weight: int) -> None:
        if self._left() > max(self.coordinator._slack_units, weight - 1):
            raise Broken(f"{weight} units are refused while {self._left()} are left: {self.coordinator}")

    @property
    def quiet(self) -> bool:
        return not any(self.up) and not any(self.down)

    def check_when_quiet(self) -> None:
        """Every request is decided, and none was refused too early."""
        if self._used("losses") or self._used("timeouts"):
            self._heal()
        coordinator = self.coordinator
        if coordinator.recalling or coordinator.resetting:
            raise Broken(f"the coordinator waits for an answer, and no message is on its way: {coordinator}")
        left = self._left()
        slack = coordinator._slack_units
        for number, site in enumerate(self.sites):
            if self.ended[number]:
                continue
            if self.requests[number][0]:
                raise Broken(f"a request of site {number} waits for ever: {site}")
            if site.exhausted_from is not None and left > max(slack, site.exhausted_from - 1):
                raise Broken(f"site {number} refuses {site.exhausted_from} units, {left} are left")
        if any(holder.state not in (CURRENT, GIVEN_UP) for holder in coordinator._holders.values()):
            raise Broken("a site has not answered a recall, and no message is on its way")

    def _heal(self) -> None:
        for number, site in enumerate(self.sites):
            if not self.ended[number] and site.seq:
                self._send(self.coordinator.join(IDS[number], site.resend()))
            elif self.ended[number] and self.coordinator._holders.get(IDS[number]) is not None:
                if site.closed:
                    self._to_coordinator(number, Leave(site.spent))
                else:
                    self._send(self.coordinator.give_up(IDS[number]))
        for _ in range(1000):
            for number in range(len(self.sites)):
                while self.down[number]:
                    self._down(number, 0)
                while self.up[number]:
                    self._up(number, 0)
            if self.quiet:
                return
        raise Broken("after every site reconnected, messages are sent without end")


class Found(NamedTuple):
    """How many states a search visited, and the first run that broke a rule."""

    states: int
    broken: str | None = None
    run: tuple[Action, ...] = ()


def search(start: World, most_states: int = 10**7) -> Found:
    """Visit every state that can be reached, the nearest first, until a rule is broken."""
    first = start.freeze()
    parents: dict[Key, tuple[Key, Action] | None] = {first: None}
    frontier = [first]
    while frontier:
        reached: list[Key] = []
        for key in frontier:
            for action in list(start.thaw(start, key).actions()):
                world = start.thaw(start, key)
                try:
                    world.do(action)
                    after = world.freeze()
                    if after in parents:
                        continue
                    parents[after] = (key, action)
                    if world.quiet:
                        world.check_when_quiet()
                except Broken as broken:
                    return Found(len(parents), str(broken), _run_to(parents, key, action))
                reached.append(after)
            if len(parents) > most_states:
                raise AssertionError(f"more than {most_states} states in {start.case}")
        frontier = reached
    return Found(len(parents))


def _run_to(parents: dict[Key, tuple[Key, Action] | None], key: Key, last: Action) -> tuple[Action, ...]:
    actions = [last]
    step = parents[key]
    while step is not None:
        key, action = step
        actions.append(action)
        step = parents[key]
    return tuple(reversed(actions))
