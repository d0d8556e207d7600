"""Counters: estimates, bounds and messages, under joins, departures, time-outs and restarts at every step."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from countless.core.answer import State
from countless.core.coordinator import Coordinator
from countless.core.floor import NAME as BELOW_FLOOR
from countless.core.messages import Report, SiteId, Snapshot, StartRound
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named
from countless_lab.tightness.search import Group, Ratios, Row, Run

COUNTER = "c"
MAX_SITES = 8
MAX_TOTAL = 1 << 50


@dataclass(frozen=True)
class Setting:
    scheme: str
    alpha: float
    sites: int = 0  # deployed with the coordinator
    joining: int = 0  # that join before the first operation
    floor: int = 0


SETTINGS = (
    Setting("deterministic", 0.2, 1),
    Setting("deterministic", 0.2, 2),
    Setting("deterministic", 0.05, 3),
    Setting("deterministic", 0.01, 5),
    Setting("deterministic", 0.25, 0, 2, 40),
    Setting("deterministic", 0.1, 0, 4, 400),
    Setting("deterministic", 0.4, 0, 8, 10_000),
    Setting("deterministic", 0.4, 0, 30, 20_000),
    Setting("exact", 0.1, 2),
    Setting("sampled", 0.3, 3),
    Setting("auto", 0.2, 2),
    Setting("auto", 0.05, 4),
)
ROWS = (
    Row("C1", "C1", "violations: a state of exact, and another estimate than the total", True),
    Row("C2", "C2", "error of the estimate of `deterministic` <= alpha N"),
    Row("C11", "C11", "error of the largest estimate so far <= alpha N"),
    Row("C11 falls", "C11", "violations: it falls", True),
    Row("C13", "C13", "violations: more is known of a site than it has counted, or less remains when it leaves", True),
    Row("C15", "C15", "StartRound and Snapshot of a synchronisation <= 2 k"),
    Row("C54", "C54", "reports of `auto`, while its rounds are `deterministic` <= N"),
    Row("C64", "C64", "error below the floor F <= alpha F"),
    Row("C67", "C67", "reports below the floor <= k/(2 alpha) + k/2 + 1"),
    Row("C73", "C73", "what sites may have counted since their reports <= 2 alpha R/(1 - alpha)"),
    Row("C74", "C74", "violations: a total outside the bounds, or a lower bound that is not what was reported", True),
)
KINDS = 12


class World:
    """A coordinator and sites whose messages arrive at once; a site that is cut off counts on."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.ratios: Ratios = dict.fromkeys((row.name for row in ROWS), 0.0)
        fleet = [SiteId(number) for number in range(setting.sites)]
        self.rng = SeededRandom(1)
        self.coordinator = self._new(fleet=fleet, expected=setting.joining)
        self.sites = {each: self._site(each, self.coordinator.trigger_of(each)) for each in fleet}
        self.cut_off: dict[SiteId, None] = {}
        self.total = self.departed = 0
        self.published = 0.0
        self.sent: Counter[type] = Counter()
        self.joined = setting.sites
        self.reports = 0
        self.below = bool(setting.floor)  # no more than adds so far, and the floor is not reached
        self.all_deterministic = setting.scheme == "auto"
        for _ in range(setting.joining):
            self.join(0)

    def _new(self, fleet: Iterable[SiteId] = (), expected: int = 0, saved: Any = None) -> Coordinator:
        setting = self.setting
        return Coordinator(
            COUNTER,
            scheme_named(setting.scheme, "sees-everything"),
            self.rng.spawn("coordinator"),
            alpha=setting.alpha,
            delta=1e-9,
            floor=setting.floor,
            expected_sites=expected,
            fleet=fleet,
            saved_state=saved,
        )

    def _site(self, site_id: SiteId, trigger: Any = None, count: int = 0) -> Site:
        return Site(COUNTER, site_id, self.rng.spawn("site", site_id.site), trigger=trigger, count=count)

    # Messages

    def up(self, site_id: SiteId, messages: Iterable[Any]) -> None:
        for message in messages:
            if site_id in self.cut_off:
                continue
            self.sent[type(message)] += 1
            self.reports += isinstance(message, Report)
            self.down(self.coordinator.receive(site_id, message))

    def down(self, outbox: Iterable[tuple[SiteId, Any]]) -> None:
        for site_id, message in outbox:
            self.sent[type(message)] += 1
            if site_id in self.sites and site_id not in self.cut_off:
                self.up(site_id, self.sites[site_id].receive(message))

    # Operations

    def add(self, site_id: SiteId, n: int) -> None:
        if n > 0 and self.total + n < MAX_TOTAL:
            self.total += n
            self.up(site_id, self.sites[site_id].add(n))

    def join(self, count: int) -> None:
        if len(self.sites) < max(MAX_SITES, self.setting.joining):
            self.joined += 1
            site_id = SiteId(self.joined + 100)
            site = self.sites[site_id] = self._site(site_id, count=count)
            self.total += count
            self.down(self.coordinator.join(site_id, site.snapshot()))

    def leave(self, site_id: SiteId) -> None:
        if len(self.sites) > 1 and site_id not in self.cut_off:
            site = self.sites.pop(site_id)
            self.departed += site.count
            self.down(self.coordinator.leave(site_id, site.snapshot()))
            self._violated("C13", self.coordinator.departed != self.departed)

    def cut(self, site_id: SiteId) -> None:
        self.cut_off[site_id] = None
        self.down(self.coordinator.mark_unreachable(site_id))

    def reconnect(self, site_id: SiteId) -> None:
        self.cut_off.pop(site_id, None)
        self.down(self.coordinator.join(site_id, self.sites[site_id].snapshot()))
        self.up(site_id, self.sites[site_id].resend())

    def restart(self) -> None:
        self.coordinator = self._new(saved=self.coordinator.saved_state)
        self.down(self.coordinator.recover())
        for site_id in [each for each in self.sites if each not in self.cut_off]:
            self.reconnect(site_id)
        for site_id in self.cut_off:
            self.down(self.coordinator.mark_unreachable(site_id))

    def take(self, kind: int, who: int, amount: int) -> None:
        site_id = [*self.sites][who % len(self.sites)]
        site, largest = self.sites[site_id], 1 + amount * amount
        room = max(0, site.next_at - site.count - 1)
        before, round_before, known = Counter(self.sent), self.coordinator.round, len(self.sites)
        match kind:
            case 0 | 1:
                self.add(site_id, (1, largest, room, room + 1, site.count // 2, site.count)[amount % 6])
            case 2 | 3:
                for each in [*self.sites]:
                    self.add(each, self.sites[each].next_at - self.sites[each].count - 1)
            case 4:
                for each in [*self.sites]:
                    self.add(each, self.sites[each].next_at - self.sites[each].count)
            case 5:
                self.add(site_id, room + 1)
            case 6:
                self.add(site_id, largest)
            case _ if kind == 11 or amount >= 16:  # the rarer operations
                self.add(site_id, room)
            case 7:
                self.join(amount % 4 * who)
            case 8:
                self.leave(site_id)
            case 9 if site_id in self.cut_off:
                self.reconnect(site_id)
            case 9:
                self.cut(site_id)
            case 10:
                self.restart()
        if kind in (7, 8, 9, 10):
            self.below = self.all_deterministic = False
        rounds = self.coordinator.round - round_before
        if rounds > 0 and kind < 7:
            spent = sum(self.sent[each] - before[each] for each in (StartRound, Snapshot))
            self._note("C15", spent, 2 * known * rounds)
        self.check()

    # What is checked

    def _note(self, name: str, found: float, allowed: float) -> None:
        if allowed > 0:
            self.ratios[name] = max(self.ratios[name], found / allowed)

    def _violated(self, name: str, violated: bool) -> None:
        self.ratios[name] += violated

    def check(self) -> None:
        coordinator, setting, total = self.coordinator, self.setting, self.total
        answer = coordinator.answer
        same = answer.lower == answer.estimate == answer.upper == total
        self._violated("C1", answer.state is State.EXACT and not same)
        self._violated("C11 falls", coordinator.published < self.published)
        self.published = coordinator.published
        for site_id, site in self.sites.items():
            self._violated("C13", coordinator.reported_by(site_id) > site.count)
        if answer.state in (State.LEARNING, State.DEGRADED):
            return
        below = answer.scheme == BELOW_FLOOR
        certain = answer.scheme in ("deterministic", "exact", BELOW_FLOOR)
        if certain and below:
            self._note("C64", abs(answer.estimate - total), setting.alpha * max(total, setting.floor))
        elif certain and not setting.floor:
            self._note("C2", abs(answer.estimate - total), setting.alpha * total)
            self._note("C11", abs(coordinator.published - total), setting.alpha * total)
        if certain:
            self._violated("C74", not answer.lower <= total <= answer.upper)
            reported = self.departed + sum(coordinator.reported_by(each) for each in self.sites)
            self._violated("C74", answer.lower != reported)
        if answer.scheme == "deterministic":
            reported = coordinator.known_total
            may = sum(max(0, each.next_at - 1 - coordinator.reported_by(name)) for name, each in self.sites.items())
            self._note("C73", may, 2 * setting.alpha * reported / (1 - setting.alpha))
        self.below = self.below and below
        if self.below:
            k = setting.joining
            self._note("C67", self.reports, k / (2 * setting.alpha) + k / 2 + 1)
        self.all_deterministic = self.all_deterministic and certain
        if self.all_deterministic:
            self._note("C54", self.reports, total)


def play(run: Run) -> Ratios:
    world = World(SETTINGS[run[0]])
    world.check()
    for operation in run[1]:
        world.take(*operation)
    return world.ratios


GROUP = Group(ROWS, len(SETTINGS), KINDS, play)
