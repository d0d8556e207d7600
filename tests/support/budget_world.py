"""A small world for budgets: sites, their coordinator and a faulty network, every step of which can be enumerated.

`Case` says what may happen, and how often. A world is frozen to a tuple, so a search can visit each state once; random
runs of larger cases take the same steps, and are checked in the same way.

| checked                         | when                                                                              |
|---------------------------------|-----------------------------------------------------------------------------------|
| never more than the limit       | after each step; after a reset, of what was spent since it was complete            |
| what a site may use is saved    | after each step: also of what is on its way                                        |
| no early refusal                | when the coordinator refuses, against what sites really use; and at rest           |
| forgiven is what was spent      | when a reset is complete: not more, and not less than sites had spent at its begin |
| one recall for each request     | after each step, unless sites come back                                            |
| every request is decided        | at rest: no message is on its way, and every site has connected                    |

A killed coordinator loses all connections: nothing from an older connection arrives on a new one.
"""

from collections.abc import Iterator
from copy import copy
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.holders import Holder, Holders
from countless.core.budget.messages import Ask, BudgetId, Outbox, Quota
from countless.core.budget.site import BudgetSite, Verdict
from countless.core.budget.state import PersistentBudget
from countless.core.messages import SiteId
from countless.errors import CountlessError

BUDGET = BudgetId("b")
Action = tuple[Any, ...]
Key = tuple[Any, ...]


class Case(NamedTuple):
    """What may happen. Each number is how often, in one run."""

    sites: int = 2
    limit: int = 2
    slack: float = 0.0
    requests: int = 3  # in all
    weights: tuple[int, ...] = (1,)
    queue: int = 1  # how many requests may wait at a site
    withdrawals: int = 0
    holds: int = 0  # how many of the requests may be reservations
    acquires: int = 0  # and how many of these may wait until units return
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
    deletions: int = 0  # the budget is made again at once
    sends_before_saving: bool = False  # a mutant: a kill finds the state before the last step


class Leave(NamedTuple):
    units: int


class Broken(AssertionError):
    """The protocol did something that it must not do."""


_COUNTERS = (
    *("requests", "withdrawals", "holds", "losses", "repeats", "overtakes", "reconnects", "kills", "leaves", "ends"),
    *("timeouts", "resets", "deletions", "acquires"),
)
_SITE = tuple(slot for slot in BudgetSite.__slots__ if slot not in ("budget", "early_percent"))
_HOLDER = tuple(Holder.__slots__)
_COORDINATOR = (
    *("limit", "asks", "recalls", "forgiven", "gone", "lost", "resetting", "_slack_units", "_share"),
    *("_share_holders", "_share_units"),
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
        self.coordinator = self.new_coordinator()
        self.saved = self.coordinator.saved_state
        self.sites = [self.new_site() for _ in range(case.sites)]
        self.waiting: list[tuple[tuple[int, bool, bool], ...]] = [()] * case.sites  # weight, held, queued
        self.holds: list[tuple[int, ...]] = [()] * case.sites
        self.connected = [True] * case.sites
        self.ended = [False] * case.sites
        self.up: list[tuple[Ask | Leave, ...]] = [()] * case.sites
        self.down: list[tuple[Quota, ...]] = [()] * case.sites
        self.left = [getattr(case, name) for name in _COUNTERS]  # how often each thing may still happen
        self.limit_changes = 0
        self.spent_before_reset = 0  # in truth, when the last reset was complete
        self.spent_at_reset: tuple[int, ...] = ()  # by each site, when it began
        self.recalls: tuple[int, int, int] = (-1, 0, 0)  # of the site that is first in line: its Ask, and how many

    def new_coordinator(self, saved: PersistentBudget | None = None) -> BudgetCoordinator:
        return self.coordinator_class(BUDGET, self.case.limit, slack=self.case.slack, saved_state=saved)

    def new_site(self, seq: int = 0, since: int = 0) -> BudgetSite:
        return self.site_class(BUDGET, early_percent=self.case.early_percent, seq=seq, since=since)

    # Frozen and thawed

    def freeze(self) -> Key:
        coordinator = self.coordinator
        return (
            tuple(_site_values(site) for site in self.sites),
            tuple(self.waiting),
            tuple(self.holds),
            tuple(self.connected),
            tuple(self.ended),
            tuple(self.up),
            tuple(self.down),
            tuple(self.left),
            self.limit_changes,
            self.spent_before_reset,
            self.spent_at_reset,
            self.recalls,
            _coordinator_values(coordinator),
            tuple((site_id, _holder_values(holder)) for site_id, holder in coordinator._holders.items()),
            tuple(coordinator._waiting),
            tuple(coordinator._awaited.items()),
            tuple(coordinator._refusing.items()),
            tuple(coordinator._departed),
            self.saved,
        )

    @classmethod
    def thaw(cls, origin: "World", key: Key) -> "World":
        world = copy(origin)
        sites, waiting, holds, connected, ended, up, down, left, *rest = key
        world.waiting, world.holds, world.connected, world.ended = (*map(list, (waiting, holds, connected, ended)),)
        world.up, world.down, world.left = list(up), list(down), list(left)
        world.limit_changes, world.spent_before_reset, world.spent_at_reset, world.recalls, *rest = rest
        values, holders, in_line, awaited, refusing, departed, world.saved = rest
        world.sites = []
        for site_values in sites:
            site = world.site_class.__new__(world.site_class)
            site.budget, site.early_percent = BUDGET, world.case.early_percent
            for name, value in zip(_SITE, site_values, strict=True):
                setattr(site, name, value)
            world.sites.append(site)
        world.coordinator = coordinator = copy(origin.coordinator)  # a new one would take three times as long
        coordinator._holders = Holders(rolling=False)
        for name, value in zip(_COORDINATOR, values, strict=True):
            setattr(coordinator, name, value)
        for site_id, holder_values in holders:
            holder = Holder.__new__(Holder)
            for name, value in zip(_HOLDER, holder_values, strict=True):
                setattr(holder, name, value)
            coordinator._holders.add(site_id, holder)
        coordinator._waiting, coordinator._departed = dict.fromkeys(in_line), dict.fromkeys(departed)
        coordinator._awaited, coordinator._refusing = dict(awaited), dict(refusing)
        return world

    # What may happen

    def actions(self) -> Iterator[Action]:
        case = self.case
        can = dict(zip(_COUNTERS, self.left, strict=True))
        for number, site in enumerate(self.sites):
            for way, queue in (("up", self.up[number]), ("down", self.down[number])):
                if not queue:
                    continue
                yield (way, number, 0)
                if can["losses"]:
                    yield (f"lose {way}", number)
                if can["repeats"]:
                    yield (f"repeat {way}", number)
                if can["overtakes"]:
                    for place in range(1, len(queue)):
                        yield (way, number, place)
            if self.ended[number]:
                continue
            for place, units in enumerate(self.holds[number]):
                for used in {0, units // 2, units}:
                    yield ("settle", number, place, used)
            if can["requests"] and len(self.waiting[number]) < case.queue:
                for weight in case.weights:
                    yield ("take", number, weight)
                    if can["holds"]:
                        yield ("reserve", number, weight)
                    if can["acquires"]:
                        yield ("acquire", number, weight)
            if can["withdrawals"]:
                for place in range(len(self.waiting[number])):
                    yield ("withdraw", number, place)
            if not self.connected[number]:
                yield ("connect", number)
            elif can["reconnects"] and site.seq:
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
        if can["deletions"]:
            yield ("delete",)

    def do(self, action: Action) -> None:
        name, *arguments = action
        spent, before = sum(site.spent for site in self.sites), self.coordinator
        forgiven, recalls = before.forgiven, before.recalls
        try:
            getattr(self, "_" + name.replace(" ", "_"))(*arguments)
        except CountlessError as error:
            raise Broken(f"an error in {action}: {error!r}") from error
        if self.coordinator.forgiven > forgiven:
            self._check_forgiven(spent)
        if self.coordinator is before and before.recalls > recalls and name != "set limit":
            self._count_recall()
        self.check()

    def use(self, counter: str) -> None:
        self.left[_COUNTERS.index(counter)] -= 1

    def _used(self, *counters: str) -> bool:
        return any(self.left[_COUNTERS.index(each)] < getattr(self.case, each) for each in counters)

    def _request(self, number: int, weight: int, hold: bool, queued: bool = False) -> None:
        site = self.sites[number]
        taken = site.reserve(weight, queued) if hold else site.take(weight)
        if taken.verdict is Verdict.WAITING or (queued and taken.verdict is Verdict.EXHAUSTED):
            self.waiting[number] += ((weight, hold, queued),)
        elif hold and taken.verdict is Verdict.ALLOWED:
            self.holds[number] += (weight,)
        self._post(number, taken.messages)

    def again(self, number: int) -> None:
        """What an owner does after a message, a settlement or a withdrawn request."""
        site, waiting, self.waiting[number] = self.sites[number], self.waiting[number], ()
        site.repeat()
        for request in waiting:
            self._request(number, *request)
        self._post(number, site.proceed())

    def _post(self, number: int, messages: tuple[Ask, ...]) -> None:
        if self.connected[number]:
            self.up[number] += messages

    def _take(self, number: int, weight: int) -> None:
        self.use("requests")
        self._request(number, weight, False)

    def _reserve(self, number: int, weight: int) -> None:
        self.use("requests")
        self.use("holds")
        self._request(number, weight, True)

    def _acquire(self, number: int, weight: int) -> None:
        self.use("requests")
        self.use("acquires")
        self._request(number, weight, True, True)

    def _settle(self, number: int, place: int, used: int) -> None:
        holds = self.holds[number]
        self.holds[number] = holds[:place] + holds[place + 1 :]
        self.sites[number].settle(holds[place], used)
        self.again(number)

    def _withdraw(self, number: int, place: int) -> None:
        self.use("withdrawals")
        self.waiting[number] = self.waiting[number][:place] + self.waiting[number][place + 1 :]
        self.again(number)

    def _up(self, number: int, place: int) -> None:
        if place:
            self.use("overtakes")
        message = self.up[number][place]
        self.up[number] = self.up[number][:place] + self.up[number][place + 1 :]
        self._to_coordinator(number, message)

    def _repeat_up(self, number: int) -> None:
        self.use("repeats")
        self._to_coordinator(number, self.up[number][0])

    def _lose_up(self, number: int) -> None:
        self.use("losses")
        self.up[number] = self.up[number][1:]

    def _down(self, number: int, place: int) -> None:
        if place:
            self.use("overtakes")
        message = self.down[number][place]
        self.down[number] = self.down[number][:place] + self.down[number][place + 1 :]
        self._to_site(number, message)

    def _repeat_down(self, number: int) -> None:
        self.use("repeats")
        self._to_site(number, self.down[number][0])

    def _lose_down(self, number: int) -> None:
        self.use("losses")
        self.down[number] = self.down[number][1:]

    def _to_site(self, number: int, quota: Quota) -> None:
        site = self.sites[number]
        if self.ended[number]:
            return
        if site.is_outlived(quota):
            site = self.sites[number] = self.new_site(site.seq, quota.since)
            self.holds[number] = ()
        site.receive(quota)
        self.again(number)

    def _to_coordinator(self, number: int, message: Ask | Leave) -> None:
        if isinstance(message, Leave):
            self._send(self.coordinator.leave(IDS[number], message.units))
        else:
            self._send(self.coordinator.receive(IDS[number], message))

    def _send(self, outbox: Outbox) -> None:
        if not self.case.sends_before_saving:
            self.save()
        for site_id, quota in outbox:
            number = int(site_id.site)
            if self.connected[number] and not self.ended[number]:
                self.down[number] += (quota,)
        for site_id, quota in dict(outbox).items():
            weight, requests = quota.refuse_from, self.waiting[int(site_id.site)]
            in_line = site_id in self.coordinator._waiting  # its turn will tell it more
            if weight is not None and (not in_line or any(n >= weight for n, *_ in requests)):
                self._check_refusal(weight)

    def save(self) -> None:
        self.saved = self.coordinator.saved_state

    def _connect(self, number: int) -> None:
        """A new connection, on which the site asks if it has asked before."""
        self.up[number] = self.down[number] = ()
        self.connected[number] = True
        if self.sites[number].seq:
            self._send(self.coordinator.join(IDS[number], self.sites[number].resend()))

    def _reconnect(self, number: int) -> None:
        """A new connection. What is on its way on the old one may arrive or not."""
        self.use("reconnects")
        if self.case.deletions:
            self.up[number] = self.down[number] = ()  # it may not
        self._send(self.coordinator.join(IDS[number], self.sites[number].resend()))

    def _kill(self) -> None:
        self.use("kills")
        self.lose_connections()
        self.coordinator = self.new_coordinator(self.saved)
        self._send(self.coordinator.recover())
        self.save()

    def lose_connections(self) -> None:
        for number, ended in enumerate(self.ended):
            left = tuple(each for each in self.up[number] if isinstance(each, Leave))
            self.connected[number], self.down[number], self.up[number] = ended, (), left

    def _leave(self, number: int) -> None:
        self.use("leaves")
        self._end_site(number)
        self.up[number] += (Leave(self.sites[number].close()),)

    def _end(self, number: int) -> None:
        """The site is killed, and its coordinator finds out."""
        self.use("ends")
        self._end_site(number)
        self._send(self.coordinator.give_up(IDS[number]))

    def _end_site(self, number: int) -> None:
        if not self.connected[number]:
            self.up[number] = ()
        self.ended[number] = self.connected[number] = True
        self.waiting[number], self.holds[number], self.down[number] = (), (), ()

    def _time_out(self, number: int) -> None:
        self.use("timeouts")
        self._send(self.coordinator.mark_unreachable(IDS[number]))

    def _set_limit(self, limit: int) -> None:
        self.limit_changes += 1
        self._send(self.coordinator.set_limit(limit))

    def _reset(self) -> None:
        self.use("resets")
        self.spent_at_reset = tuple(site.spent for site in self.sites)
        self._send(self.coordinator.reset())

    def _delete(self) -> None:
        """The budget is deleted and made again. Messages of the old one are on their way to the sites."""
        self.use("deletions")
        self.coordinator = self.new_coordinator()
        self.save()

    # What must be true

    def _is_old(self, number: int) -> bool:
        """Whether the state of a site is that of a budget that was deleted."""
        holder, since = self.coordinator._holders.get(IDS[number]), self.sites[number].since
        return self._used("deletions") and since > 0 and (holder is None or holder.since != since)

    @property
    def used(self) -> int:
        return sum(site.used for number, site in enumerate(self.sites) if not self._is_old(number))

    def check(self) -> None:
        coordinator, case = self.coordinator, self.case
        limit = max(case.limit, *case.limits) if case.limits else case.limit
        admitted = self.used - self.spent_before_reset
        if admitted > limit:
            raise Broken(f"{admitted} units admitted, the limit is {limit}")
        if case.sends_before_saving:
            return
        if coordinator.free < 0 and not case.limits and not case.deletions:
            raise Broken(f"limits of {coordinator._holders.limits} units granted: {coordinator}")
        for number, site in enumerate(self.sites):
            holder = coordinator._holders.get(IDS[number])
            if holder is None or self.ended[number] or self._is_old(number):
                continue
            granted = max(site.granted, *(quota.granted for quota in self.down[number]), 0)
            if granted > holder.granted or site.granted - site.limit < holder.returned:
                raise Broken(f"{site} may be granted {granted}, saved is {holder}")

    def _check_forgiven(self, spent: int) -> None:
        coordinator = self.coordinator
        if coordinator.forgiven > spent:
            raise Broken(f"{coordinator.forgiven} units are forgiven, {spent} were spent")
        least = coordinator.gone
        for number, before in enumerate(self.spent_at_reset):
            holder = coordinator._holders.get(IDS[number])
            if holder is not None and holder.reachable and not holder.given_up and not self.ended[number]:
                least += before
        if coordinator.forgiven < least and not self._used("losses", "timeouts", "kills"):
            raise Broken(f"{coordinator.forgiven} units are forgiven, {least} were spent before")
        self.spent_before_reset = spent

    def _count_recall(self) -> None:
        site_id = next(iter(self.coordinator._waiting), None)
        if site_id is None:
            return
        number, seq = int(site_id.site), self.coordinator._holders[site_id].seq
        recalls = self.recalls[2] + 1 if self.recalls[:2] == (number, seq) else 1
        self.recalls = number, seq, recalls
        if recalls > 1 and not self._used("reconnects", "timeouts", "kills", "losses"):
            raise Broken(f"{recalls} recalls for one request of site {number}")

    def left_units(self) -> int:
        """The units that a request could still get, in truth.

        Those at sites that ended or do not answer are not among them, nor are those on their way: to a request that
        waits, or back.
        """
        coordinator = self.coordinator
        left = coordinator.limit + coordinator.forgiven - coordinator.lost - self.used
        for site_id, holder in coordinator._holders.items():
            number = int(site_id.site)
            site = self.sites[number]
            if holder.given_up or not holder.reachable or self.ended[number] or not self.connected[number]:
                left -= holder.limit - (0 if self._is_old(number) else site.used)
            elif not self._is_old(number):
                asks = [ask.returned for ask in self.up[number] if isinstance(ask, Ask)]
                left -= max(0, max(asks, default=0) - holder.returned)
                left -= max(0, max((quota.granted for quota in self.down[number]), default=0) - site.granted)
        return left

    def _check_refusal(self, weight: int) -> None:
        if self._used("losses", "deletions") or self.case.sends_before_saving:
            return  # nobody knows what is on its way
        left = self.left_units()
        if left > max(self.coordinator._slack_units, weight - 1):
            raise Broken(f"{weight} units are refused while {left} are left: {self.coordinator}")

    @property
    def quiet(self) -> bool:
        return not any(self.up) and not any(self.down)

    def check_when_quiet(self) -> None:
        """Every request is decided, and none was refused too early."""
        if self._used("losses", "timeouts", "deletions") or not all(self.connected):
            self._heal()
        coordinator = self.coordinator
        if coordinator.recalling or coordinator.resetting:
            raise Broken(f"the coordinator waits for an answer, and no message is on its way: {coordinator}")
        if coordinator.free < 0 and any(site.room and not self.ended[number] for number, site in enumerate(self.sites)):
            raise Broken(f"sites keep room of a limit that was lowered: {coordinator}")
        left = self.left_units()
        slack = coordinator._slack_units
        for number, site in enumerate(self.sites):
            holder = coordinator._holders.get(IDS[number])
            if self.ended[number] or (holder is None and self._is_old(number)):
                continue
            if any(not queued or max(slack, weight - 1) < left for weight, _, queued in self.waiting[number]):
                raise Broken(f"a request of site {number} waits for ever: {site}")
            if site.refuse_from is not None and left > max(slack, site.refuse_from - 1):
                raise Broken(f"site {number} refuses {site.refuse_from} units, {left} are left")
            if holder is None:
                continue
            if site.keep != holder.lent or (site.room > 0 and not site.keep) or not holder.reachable:
                raise Broken(f"{site} is {holder}")

    def _heal(self) -> None:
        for number, site in enumerate(self.sites):
            if not self.ended[number]:
                self._connect(number)
            elif self.coordinator._holders.get(IDS[number]) is not None:
                if site.closed:
                    self._to_coordinator(number, Leave(site.spent))
                else:
                    self._send(self.coordinator.give_up(IDS[number]))
        self.deliver_all()

    def deliver_all(self) -> None:
        for _ in range(1000):
            for number in range(len(self.sites)):
                while self.down[number]:
                    self._down(number, 0)
                while self.up[number]:
                    self._up(number, 0)
            if self.quiet:
                return
        raise Broken("messages are sent without end")


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


def walk(world: World, seed: int, steps: int = 400) -> None:
    """One random run, and the checks at its end. Messages are delivered more often than requests are made."""
    rng = Random(seed)  # noqa: S311
    for _ in range(steps):
        actions = list(world.actions())
        if not actions:
            break
        deliveries = [action for action in actions if action[0] in ("up", "down") and action[2] == 0]
        requests = [action for action in actions if action[0] in ("take", "reserve", "settle")]
        times = [action for action in actions if action[0] == "time"]
        kinds = [kind for kind in (deliveries, deliveries, deliveries, requests, requests, actions, times) if kind]
        world.do(rng.choice(rng.choice(kinds)))
    for _ in range(10_000):
        deliveries = [action for action in world.actions() if action[0] in ("up", "down") and action[2] == 0]
        if not deliveries:
            break
        world.do(rng.choice(deliveries))
    if not world.quiet:
        raise Broken("messages are sent without end")
    world.check_when_quiet()
