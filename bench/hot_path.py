"""What one event, one report and one site cost."""

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from time import process_time
from time import time as now

from prometheus_client import CollectorRegistry, Counter

from bench import figures
from countless.client.budgets.budget import BudgetLink, BudgetPart, in_memory
from countless.client.budgets.local_periods import NewLocal
from countless.client.durable.budget import DurableBudget
from countless.client.durable.count_file import CountFile
from countless.client.durable.counter import DurableCounter
from countless.client.forks import present_page
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalCounterWindows
from countless.core.budget.messages import BudgetId, Quota
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.core.site import Site
from countless.core.triggers import EveryNth, OffsetMultiple
from countless.inprocess.tracker import Tracker
from countless.randomness import SystemRandom
from countless.schemes.registry import SchemeName
from countless.wire.budgets import SetBudgetRule
from countless.wire.keys import ALL, COUNTER, Key

REQUEST_BARS = {"take()": 1.3, "take() with periods": 2}  # of add()


def nanoseconds(call: Callable[[], object], number: int = 200_000, repeats: int = 7) -> float:
    """Best of several runs, in processor time: other programs on the machine do not count."""
    best = float("inf")
    for _ in range(repeats):
        start = process_time()
        for _ in range(number):
            call()
        best = min(best, process_time() - start)
    return best / number * 1e9


def side_by_side(calls: dict[str, tuple[Callable[[], object], int]], turns: int = 15) -> dict[str, float]:
    """Nanoseconds of each in the best of several turns: the machine is not equally fast from one turn to the next."""
    times = [[nanoseconds(call, number, 1) for call, number in calls.values()] for _ in range(turns)]
    return dict(zip(calls, min(times, key=sum), strict=True))


def local_counter(tracker: Tracker, name: int = 0) -> LocalCounter:
    site = tracker.site(name)._local
    if not isinstance(site, LocalCounter):
        raise TypeError("a tracker with windows")
    return site


def quiet_counter() -> LocalCounter:
    """As a client has it. The next report is far away: what remains is the hot path."""
    site = Site("bench", SiteId("bench"), SystemRandom(), trigger=EveryNth(1 << 62))
    return LocalCounter(site, RLock(), print, lambda: present_page().endless(count(1)))


def increments() -> None:
    quiet = quiet_counter()
    rival = Counter("bench", "bench", registry=CollectorRegistry())
    with TemporaryDirectory() as directory:
        file = CountFile.create(Path(directory), SiteId("bench"))
        site = Site("bench", SiteId("bench"), SystemRandom(), trigger=EveryNth(1 << 62))
        written = DurableCounter(site, RLock(), print, file.allocate(Key(COUNTER, "bench")))
        calls: dict[str, tuple[Callable[[], object], int]] = {
            "ours": (quiet.add, 200_000),
            "windows": (windows_of(lambda key: quiet).add, 200_000),
            "kept": (written.add, 200_000),
            "kept windows": (windows_of(lambda key: written).add, 200_000),
            "theirs": (rival.inc, 200_000),
        }
        times = side_by_side(calls)
        file.delete()
    figures.add("ns of add()", times)
    ours, windows, kept, kept_windows, theirs = times.values()
    print(f"site.add()                      {ours:8.0f} ns   {ours / theirs:.2f} of prometheus_client (bar 0.25)")
    print(f"the same with windows           {windows:8.0f} ns   {windows / ours:.2f} of add() (bar 2)")
    print(f"the same with a state_dir       {kept:8.0f} ns   {kept / theirs:.2f}")
    print(f"with both                       {kept_windows:8.0f} ns   {kept_windows / theirs:.2f}")
    print(f"prometheus_client Counter.inc() {theirs:8.0f} ns   1")


def windows_of(new: Callable[[Key], LocalCounter]) -> LocalCounterWindows:
    return LocalCounterWindows(Key(COUNTER, "bench", "hour", ALL), 0.5, RLock(), now, new, print)


def requests() -> None:
    """Requests that fit what the process was granted."""
    quiet = quiet_counter()
    with TemporaryDirectory() as directory:
        file = CountFile.create(Path(directory), SiteId("bench"))

        def in_file(site: BudgetSite, site_id: SiteId) -> DurableBudget:
            return DurableBudget(site, 1, file)

        calls: dict[str, tuple[Callable[[], object], int]] = {
            "add()": (quiet.add, 200_000),
            "take()": (granted_budget(in_memory).take, 200_000),
            "take() with periods": (granted_budget(in_memory, "hour").take, 200_000),
            "take() with a state_dir": (granted_budget(in_file).take, 200_000),
            "take(5)": (partial(granted_budget(in_memory).take, 5), 50_000),
        }
        times = side_by_side(calls)
        file.delete()
    figures.add("ns of a request", times)
    for name, time in times.items():
        bar = f" (bar {REQUEST_BARS[name]})" if name in REQUEST_BARS else ""
        print(f"{name:31} {time:8.0f} ns   {time / times['add()']:.2f} of add(){bar}")


def granted_budget(new_local: NewLocal, per: str | None = None) -> BudgetPart:
    def ignore(*_: object) -> None:
        pass

    link = BudgetLink(send=ignore, connected=lambda: True, count_waiter=ignore, new_local=new_local)
    budget = BudgetPart("bench", SiteId("bench"), RLock(), link)
    calendar = BudgetRule(10**9, per).calendar
    if calendar is not None:
        budget.receive(SetBudgetRule(BudgetId("bench"), 10**9, per, "UTC", None, 0.01, "spending", "charge", "refuse"))
    period = 0 if calendar is None else calendar.period_at(now())
    budget.receive(Quota(BudgetId("bench", period), since=1, number=1, granted=10**9, keep=True))
    return budget


def batches() -> None:
    print("add(n): the price follows the reports, not the events")
    for n in (1, 1_000, 1_000_000, 10**12):
        site = local_counter(Tracker(sites=1, scheme="deterministic"))
        site.add(10**15)
        print(f"  add({n:>13,})  {nanoseconds(partial(site.add, n), 20_000, 3):8.0f} ns")


def throughput() -> None:
    """Each call is a report; rounds and their messages are in the time.

    The other messages give sites their triggers and, when a round starts, their exact counts to the coordinator.
    """
    schemes: list[SchemeName] = ["exact", "deterministic", "lattice", "sampled", "dithered", "auto"]
    # By turns, and the best of each: plans are kept after the first, and the machine is not equally fast all the time.
    runs = [[drive(scheme) for scheme in schemes] for _ in range(15)]
    for scheme, own in zip(schemes, zip(*runs, strict=True), strict=True):
        sent, seconds, reports = min(own, key=lambda run: run[1])
        figures.add("µs of a message", {scheme: 1e6 * seconds / sent})
        rates = f"{sent / seconds:10,.0f} messages a second, {reports / seconds:10,.0f} of them reports"
        print(f"{scheme:13} {rates} (bar 180,000)")


def drive(scheme: SchemeName, sites: int = 1000, laps: int = 50) -> tuple[int, float, int]:
    """Messages, processor seconds and reports."""
    tracker = warm_tracker(scheme, sites)
    before, start = tracker.messages, process_time()
    report(tracker, laps)
    seconds = process_time() - start
    return tracker.messages.total - before.total, seconds, sites * laps


def warm_tracker(scheme: SchemeName, sites: int) -> Tracker:
    """Its sites have long left exact reporting."""
    tracker = Tracker(sites=sites, alpha=0.01, scheme=scheme, seed=1)
    for name in range(sites):
        local_counter(tracker, name).add(1_000_000)
    return tracker


def report(tracker: Tracker, laps: int) -> None:
    """Each site in turn sends a report with each call."""
    counters = [local_counter(tracker, name) for name in range(len(tracker.sites))]
    calls = [(counter.add, counter.debug_state()) for counter in counters]
    for _ in range(laps):
        for add, site in calls:
            trigger = site.trigger
            # To the next point; but where that is a secret, one step from wherever the site is. Traffic that aims at
            # secrets is what no scheme stands: answers would be wrong, and one round would follow on the other.
            add(trigger.step if type(trigger) is OffsetMultiple else site.next_at - site.count)


def memory() -> None:
    count, rng, trigger, lock = 20_000, SystemRandom(), EveryNth(1), RLock()  # shared, as in a Tracker
    site_ids = [SiteId(name) for name in range(count)]
    gc.collect()
    tracemalloc.start()
    sites = [Site("total", site_id, rng, trigger=trigger) for site_id in site_ids]
    counters = [LocalCounter(site, lock, print) for site in sites]
    for site in sites:
        site.advance(1_000_000)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    figures.add("bytes", {"a site and its local counter": used / len(counters)})
    print(f"{used / len(counters):.0f} bytes for a site and its local counter (bar 500)")


def main() -> None:
    increments()
    requests()
    batches()
    throughput()
    memory()
