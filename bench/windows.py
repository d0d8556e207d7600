"""What windows cost beside flushes, and messages per second around an edge: design/measurements/windows.md.

Sites, coordinators and the times at which sites prepare and finish a window are those of production, on a virtual
clock. Events are Poisson processes: they are not played one by one, only the time of the next report of each site is
drawn. Messages arrive at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import exp, inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from countless import Tracker
from countless.core.calendar import Calendar
from countless.core.coordinator import Coordinator
from countless.core.messages import Outbox, SiteId
from countless.core.periods.site import MARGIN_S, SitePeriods
from countless.core.periods.window import FLOOR_SHARE
from countless.core.site import Site
from countless.planning.baselines import FLUSH_PERIODS_S
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named
from countless_lab.simulation.traces import read_trace
from tools.tables import Table

HOUR_S = 3600
START_S = 1_794_823_200  # 2026-11-16 10:00, the beginning of the first hour
EVENTS_PER_HOUR = 36_000_000
FLEETS = (10, 100, 1_000)
ALPHAS = (0.01, 0.05)
FLOORS = {
    "from scratch": 0,
    "floor: a third": EVENTS_PER_HOUR // FLOOR_SHARE,
    "floor: the last window": EVENTS_PER_HOUR,
}
EDGE_SITES = 1_000
EDGE_FLOORS = {"a tenth": 10, "a third": FLOOR_SHARE, "the last window": 1}
KINDS = ("joins", "leaves", "reports", "rounds")
EDGE_S = MARGIN_S["hour"]  # on both sides of an edge
DAY_S = 24 * HOUR_S
DEFAULT_SITES = 100
DEFAULT_EVENTS_PER_HOUR = (36_000_000, 36_000, 360)
QUIET = ((50, 2_000), (400, 2_000), (400, 20_000), (400, 200_000))  # sites, events an hour
TRACES = Path(__file__).parents[2] / "shared" / "traces"
BY_SHARES_PARTS = 24  # of a window, in each of which steps stay as they are
QUIET_TRACES = ("wikipedia_edits", "flights_3m")


class Sent(NamedTuple):
    """A message, or several that are sent at the same moment."""

    moment: float
    period: int
    kind: str
    number: int


class SiteWindow(Site):
    """One window at one site, between two reports. `drawn_at` is the moment up to which its events are drawn."""

    __slots__ = ("drawn_at", "period", "reports_at")

    def __init__(self, period: int, number: int, rng: SeededRandom) -> None:
        super().__init__(str(period), SiteId(number), rng)
        self.period = period
        self.drawn_at, self.reports_at = 0.0, inf


class Fleet:
    """Sites that count in hours, and a coordinator for each hour."""

    def __init__(self, rates: Sequence[float], alpha: float, floors: Sequence[int], *, scheme: str, seed: int) -> None:
        """One hour for each floor. Every site has joined the first one before it begins, and leaves the last one."""
        self.sent: list[Sent] = []
        self._rates = rates
        self._alpha = alpha
        self._scheme = scheme_named(scheme, "adaptive")
        self._random, self._rng = np.random.default_rng(seed), SeededRandom(seed)
        self._calendar = Calendar("hour")
        self._first = self._calendar.period_at(START_S)
        self._floors = dict(enumerate(floors, start=self._first))
        self._coordinators: dict[int, Coordinator] = {}
        self._now = 0.0
        self._sites = [
            SitePeriods(self._calendar, self._new_site(number), self._random.random()) for number in range(len(rates))
        ]
        self._agenda: list[tuple[float, int, int]] = []  # moment, window or 0, site

    def run(self) -> None:
        """Until the last site has left the last window."""
        self._now = START_S
        for number, windows in enumerate(self._sites):
            self._join(windows.enter(START_S))
            self._schedule_tick(number)
        while self._agenda:
            self._now, period, number = heappop(self._agenda)
            if not period:
                self._tick(number)
                continue
            site = self._sites[number].states.get(period)
            if site is not None and site.reports_at == self._now:
                self._report(site)

    def _new_site(self, number: int) -> Callable[[int], SiteWindow]:
        return lambda period: SiteWindow(period, number, self._rng.spawn("site", number, period))

    def _join(self, site: SiteWindow) -> None:
        """Before its window begins, at count 0."""
        period, start = site.period, self._calendar.bounds(site.period)[0]
        if period not in self._coordinators:
            self._coordinators[period] = Coordinator(
                site.counter,
                self._scheme,
                self._rng.spawn("coordinator", period),
                alpha=self._alpha,
                delta=0.05,
                floor=self._floors[period],
                expected_sites=len(self._rates),
            )
        site.drawn_at = float(start)
        self._send("joins", period, 1)
        self._deliver(period, self._coordinators[period].join(site.site_id, site.snapshot()), "joins")

    def _tick(self, number: int) -> None:
        windows = self._sites[number]
        prepared = windows.prepare(self._now, lambda site: site.period + 1 in self._floors)
        if prepared is not None:
            self._join(windows.states[prepared])
        for site in windows.finish(self._now, self._now).values():
            site.count = self._count_by(site, float(self._calendar.bounds(site.period)[1]))
            self._send("leaves", site.period, 2)  # and its acknowledgement
            coordinator = self._coordinators[site.period]
            self._deliver(site.period, coordinator.leave(site.site_id, site.snapshot()))
        if windows.states:
            self._schedule_tick(number)

    def _schedule_tick(self, number: int) -> None:
        windows, now = self._sites[number], self._now
        seconds = min(windows.seconds_to_prepare(now), windows.seconds_to_finish(now, now))
        heappush(self._agenda, (now + max(seconds, 1e-3), 0, number))

    def _report(self, site: SiteWindow) -> None:
        messages = site.advance(site.next_at)
        site.drawn_at = self._now
        self._send("reports", site.period, len(messages))
        self._draw_report(site)
        for message in messages:
            self._deliver(site.period, self._coordinators[site.period].receive(site.site_id, message))

    def _deliver(self, period: int, outbox: Outbox, kind: str = "rounds") -> None:
        for site_id, message in outbox:
            site = self._sites[int(site_id.site)].states[period]
            self._send(kind, period, 1)
            site.count = self._count_by(site, self._now)
            site.drawn_at = max(site.drawn_at, self._now)
            for reply in site.receive(message):
                self._send("rounds", period, 1)
                outbox += self._coordinators[period].receive(site_id, reply)
            self._draw_report(site)

    # Events

    def _draw_report(self, site: SiteWindow) -> None:
        number = int(site.site_id.site)
        site.reports_at = site.drawn_at + self._random.standard_gamma(site.next_at - site.count) / self._rates[number]
        if site.reports_at < self._calendar.bounds(site.period)[1]:
            heappush(self._agenda, (site.reports_at, site.period, number))

    def _count_by(self, site: SiteWindow, moment: float) -> int:
        """The events before a moment at which it has not reported yet: all but the last are anywhere before that."""
        end = min(moment, float(self._calendar.bounds(site.period)[1]))
        if end <= site.drawn_at:
            return site.count
        share = (end - site.drawn_at) / (site.reports_at - site.drawn_at)
        return site.count + int(self._random.binomial(site.next_at - site.count - 1, share))

    def _send(self, kind: str, period: int, number: int) -> None:
        self.sent.append(Sent(self._now, period, kind, number))


def even(sites: int) -> list[float]:
    """Events per second of each site."""
    return [EVENTS_PER_HOUR / HOUR_S / sites] * sites


def zipf(sites: int) -> list[float]:
    weights = [1 / (site + 1) for site in range(sites)]
    return [EVENTS_PER_HOUR / HOUR_S * weight / sum(weights) for weight in weights]


def costs() -> Iterator[Table]:
    """Messages of one hour."""
    rows = []
    for traffic in (even, zipf):
        for sites in FLEETS:
            rates = traffic(sites)
            flushes = [HOUR_S / period * sum(1 - exp(-rate * period) for rate in rates) for period in FLUSH_PERIODS_S]
            for alpha in ALPHAS:
                messages = []
                for floor in FLOORS.values():
                    fleet = Fleet(rates, alpha, [floor], scheme="auto", seed=1)
                    fleet.run()
                    messages.append(sum(sent.number for sent in fleet.sent))
                figures = [f"{number:,.0f}" for number in (*messages, *flushes)]
                rows.append((traffic.__name__, f"{sites:,}", f"{alpha:.0%}", *figures))
                print(" ".join(rows[-1]), flush=True)
    columns = ("traffic", "sites", "alpha", *FLOORS, *(f"flush every {period} s" for period in FLUSH_PERIODS_S))
    yield Table("windows-costs", columns, rows)


def edges() -> Iterator[Table]:
    """Messages per second in the minutes around the edge between two hours."""
    rows = []
    for name, share in EDGE_FLOORS.items():
        for traffic in (even, zipf):
            for alpha in ALPHAS:
                fleet = Fleet(traffic(EDGE_SITES), alpha, [EVENTS_PER_HOUR // share] * 3, scheme="auto", seed=1)
                fleet.run()
                rows.append((name, traffic.__name__, f"{alpha:.0%}", *_edge(fleet.sent)))
                print(" ".join(rows[-1]), flush=True)
    columns = (
        "floor",
        "traffic",
        "alpha",
        "average of the hour",
        *KINDS,
        "busiest minute",
        "busiest second",
        "no edge",
    )
    yield Table("windows-edges", columns, rows)


def _edge(sent: Sequence[Sent]) -> list[str]:
    """Of the edge at the end of the second of three hours. The last three numbers are beside the average."""
    edge = START_S + 2 * HOUR_S
    average = sum(each.number for each in sent if edge - HOUR_S <= each.moment < edge) / HOUR_S
    near = [each for each in sent if abs(each.moment - edge) <= EDGE_S]
    kinds: Counter[str] = Counter()
    for each in near:
        kinds[each.kind] += each.number
    figures = [f"{average:.1f}", *(f"{kinds[kind] / 2 / EDGE_S:.1f}" for kind in KINDS)]
    busiest = (_busiest(near, 60), _busiest(near, 1), _busiest_without_edge(average))
    return [*figures, *(f"{each:.1f} ({each / average:.1f})" for each in busiest)]


def _busiest(sent: Sequence[Sent], seconds: int) -> float:
    """Messages per second in the busiest span of this length."""
    bins: Counter[int] = Counter()
    for each in sent:
        bins[int(each.moment // seconds)] += each.number
    return max(bins.values()) / seconds


def _busiest_without_edge(average: float) -> float:
    """The busiest second of the same span when messages come at random with this rate, always: the median."""
    seconds = np.random.default_rng(1).poisson(average, size=(1_000, int(2 * EDGE_S)))
    return float(np.median(seconds.max(axis=1)))


def by_default() -> Iterator[Table]:
    """Messages of a day for a total that is a month old, and for one with hourly windows."""
    rows = []
    for traffic in (even, zipf):
        rates = np.array(traffic(DEFAULT_SITES)) / EVENTS_PER_HOUR
        for events in DEFAULT_EVENTS_PER_HOUR:
            total = _messages_of_a_day(rates * events, before_s=30 * DAY_S)
            hourly = _messages_of_a_day(rates * events, before_s=2 * HOUR_S, per="hour")
            rows.append((traffic.__name__, *(f"{number:,}" for number in (24 * events, total, hourly))))
            print(" ".join(rows[-1]), flush=True)
    yield Table("windows-default", ("traffic", "events of the day", "total", "with hourly windows"), rows)


def _messages_of_a_day(rates: np.ndarray, before_s: int, per: str | None = None) -> int:
    """What came before the day is counted in half hours, the day in steps of 20 seconds, sites in random order."""
    random, now = np.random.default_rng(1), float(START_S)
    windows: dict[str, Any] = {} if per is None else {"per": per, "clock": lambda: now}
    tracker = Tracker(sites=len(rates), alpha=0.01, seed=1, **windows)
    before = 0
    for span_s, step_s in ((before_s, 1800), (DAY_S, 20)):
        before = tracker.messages.total
        for _ in range(span_s // step_s):
            counts = random.poisson(rates * step_s)
            for site in random.permutation(np.flatnonzero(counts)):
                tracker.site(int(site)).add(int(counts[site]))
            now += step_s
    return tracker.messages.total - before


def quiet() -> Iterator[Table]:
    """Messages of hourly windows in which there are few events for each site, beside those of a flush."""
    rows = []
    for name, sites, events in _quiet_traffic():
        minutes = Counter((int(moment // 60), site) for moment, site in events)
        batches = [(60.0 * minute, site, number) for (minute, site), number in minutes.items()]
        hours: dict[int, Counter[int]] = {}
        for (minute, site), number in sorted(minutes.items()):
            hours.setdefault(minute // 60, Counter())[site] += number
        messages = [_messages(sites, adds) for adds in ([(*event, 1) for event in events], batches)]
        an_hour = len(events) * HOUR_S / max(HOUR_S, events[-1][0])
        site_hours = sum(map(len, hours.values()))
        costs = (*messages, _by_shares(hours.values()), len(minutes), site_hours)
        figures = (sites, round(an_hour, -1), len(events), *costs)
        rows.append((name, *(f"{number:,.0f}" for number in figures)))
        print(" ".join(rows[-1]), flush=True)
    ours = ("add(1)", "add(n) once a minute", "reports by shares, at best")
    counts = ("sites", "events an hour", "events", *ours, "flush every 60 s", "site-hours")
    yield Table("windows-quiet", ("traffic", *counts), rows)


def _by_shares(hours: Iterable[Counter[int]]) -> float:
    """Reports of windows whose steps fit the shares that their sites turn out to have: no rule knows them before.

    Together sites hold back at most `2 alpha max(n, floor)` events. Steps in proportion to the roots of the shares,
    and of at least one event, send the fewest reports.
    """
    reports, before = 0.0, 0
    for hour in hours:
        total = sum(hour.values())
        shares = np.sort(np.array([*hour.values()]))[::-1] / total
        roots = np.sqrt(shares)
        known = np.linspace(0, total, BY_SHARES_PARTS, endpoint=False) + total / BY_SHARES_PARTS / 2
        for withheld in 0.02 * np.maximum(known, before / FLOOR_SHARE):
            # The sites with the largest shares have steps above one event: as many as can.
            scales = (withheld + np.arange(1, len(roots) + 1)) / np.cumsum(roots)
            scale = scales[np.flatnonzero(scales * roots >= 1)[-1]]
            reports += total / BY_SHARES_PARTS * float((shares / np.maximum(1, scale * roots)).sum())
        before = total
    return reports


def _quiet_traffic() -> Iterator[tuple[str, int, list[tuple[float, int]]]]:
    """Name, sites, and the moment and site of each event: days of Zipf traffic, and the traces that are there."""
    for sites, events in QUIET:
        weights = [1 / (site + 1) for site in range(sites)]
        random = np.random.default_rng(1)
        moments = np.sort(random.uniform(0, DAY_S, 24 * events))
        events_of = random.choice(sites, size=len(moments), p=np.array(weights) / sum(weights))
        yield "zipf", sites, list(zip(moments.tolist(), events_of.tolist(), strict=True))
    for name in QUIET_TRACES:
        path = TRACES / name / "events.csv.gz"
        if path.exists():
            trace = read_trace(path)
            yield name, len(trace.names), list(trace.timed_events(trace.length))


def _messages(sites: int, adds: Sequence[tuple[float, int, int]]) -> int:
    now = 0.0
    tracker = Tracker(sites=sites, alpha=0.01, seed=1, per="hour", clock=lambda: now)
    for moment, site, number in adds:
        now = moment
        tracker.site(site).add(number)
    return tracker.messages.total


def main() -> Iterator[Table]:
    yield from costs()
    yield from edges()
