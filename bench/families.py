"""What families and distributions cost, beside the usual ways: design/measurements/families.md."""

import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import numpy as np

from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import Buckets, BucketSite
from countless.core.family.messages import LabelReport, Steps
from countless.core.family.rule import LABELS as LABELLED
from countless.core.family.rule import CertainSteps, FamilyRule
from countless.core.family.site import FamilySite
from countless.core.messages import SiteId
from countless.inprocess.distribution import Distribution
from countless.inprocess.family import Family
from countless.inprocess.tracker import Tracker
from countless.planning.families import most_messages
from countless.server.kinds.family import FamilyFields, MemberFields
from countless.server.storage.rows import Changes, KeyRows, alone, row_of
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.keys import FAMILY, Key
from countless_lab.arena.families import PLAYERS, play
from countless_lab.lattice_family import new_family
from countless_lab.simulation.labels import zipf_labels
from countless_lab.simulation.traces import read_trace
from tools.tables import Table

SITES, LABELS, EVENTS = 100, 10_000, 1_000_000
EPSILONS = (0.01, 0.05)
TOP_SHARE = 0.02
TRACES = Path(__file__).parents[2] / "shared" / "traces"
KEYS = {"flights_3m": "airports", "zeek_wrccdc": "hosts", "wikipedia_edits": "language channels"}
COLLECTORS = 20


# Messages


def one_counter_for_each_label(stream: list[tuple[int, str]], epsilon: float) -> int:
    """A label with few events is counted exactly: a message for each event. The others are tracked."""
    counts = Counter(label for _, label in stream)
    exact = round(SITES / (4 * epsilon))
    trackers = {
        label: Tracker(SITES, epsilon, scheme="deterministic") for label, count in counts.items() if count > exact
    }
    for site, label in stream:
        if label in trackers:
            trackers[label].site(site).add()
    small = sum(count for label, count in counts.items() if label not in trackers)
    return small + sum(tracker.messages.total for tracker in trackers.values())


def messages() -> Iterator[Table]:
    stream = list(zipf_labels(SITES, LABELS, EVENTS, seed=1))
    truth = Counter(label for _, label in stream)
    heavy = {label for label, count in truth.items() if count >= TOP_SHARE * EVENTS}
    rows = []
    for epsilon in EPSILONS:
        separate = one_counter_for_each_label(stream, epsilon)
        rows.append((f"{epsilon:.0%}", "one counter for each label", f"{separate:,}", "", "", ""))
        for scheme in ("deterministic", "lattice"):
            family = new_family(scheme, SITES, epsilon, 1)
            sites = [family.site(name) for name in family.sites]
            for site, label in stream:
                sites[site].add(label)
            worst = max(abs(family.answer(label).estimate - count) for label, count in truth.items())
            listed = family.top(max(TOP_SHARE, epsilon)).labels
            found = f"{len({each.label for each in listed} & heavy)} of {len(listed)}" if epsilon <= TOP_SHARE else ""
            bound = f"{most_messages(SITES, epsilon, EVENTS):,.0f}" if scheme == "deterministic" else ""
            figures = f"{family.messages.total:,}", bound, f"{worst / EVENTS:.2%}", found
            rows.append((f"{epsilon:.0%}", f"family, `{scheme}`", *figures))
        print(*rows[-3:], sep="\n", flush=True)
    yield Table("families-messages", ("epsilon", "what", "messages", "proved", "worst error", "true in the top"), rows)


def traces() -> Iterator[Table]:
    """Recorded traffic by its own keys, if the folder of traces is beside the project.

    Each event is at one of the collectors, in turn. After every twentieth of the trace all labels are compared with
    exact counts.
    """
    if not TRACES.is_dir():
        print(f"no traces in {TRACES.name}/ beside the project: this table needs them")
        return
    rows = []
    for name, keys in KEYS.items():
        trace = read_trace(TRACES / name / "events.csv.gz")
        events = list(trace.timed_events(10**9))
        family = Family(COLLECTORS, 0.01)
        sites = [family.site(number) for number in family.sites]
        truth: Counter[str] = Counter()
        worst, missed, extra = 0.0, 0, 0
        for number, (_, key) in enumerate(events, start=1):
            label = trace.names[key]
            sites[number % COLLECTORS].add(label)
            truth[label] += 1
            if number % (len(events) // 20) == 0:
                for each, count in truth.items():
                    answer = family.answer(each)
                    assert answer.lower <= count <= answer.upper
                    worst = max(worst, abs(answer.estimate - count) / number)
                listed = {each.label for each in family.top(TOP_SHARE).labels}
                missed += sum(n >= TOP_SHARE * number and each not in listed for each, n in truth.items())
                extra += sum(truth[str(each)] < (TOP_SHARE - 0.01) * number for each in listed)
        figures = f"{len(truth):,} {keys}", f"{len(events):,}", f"{family.messages.total:,}", f"{worst:.2%}"
        rows.append((name, *figures, str(missed), str(extra)))
        print(*rows[-1], flush=True)
    columns = ("trace", "labels", "events", "messages", "worst error", "missing in the top", "below share - epsilon")
    yield Table("families-traces", columns, rows)


def adversaries() -> Iterator[Table]:
    rows = []
    for name in PLAYERS:
        games = [play(name, scheme) for scheme in ("deterministic", "lattice")]
        cells = [f"{game.error:+.2f}" if game.within else f"**{game.error:+.2f}**" for game in games]
        rows.append((f"`{name}`", *cells))
    yield Table("families-adversaries", ("player", "`deterministic`", "`lattice`"), rows)


# Memory


def memory() -> Iterator[Table]:
    labels = [f"tenant-{number:06d}" for number in range(100_000)]
    rows = [
        ("a site", f"{len(labels):,} labels, none reported yet", f"{_bytes_of(lambda: _site(labels, 0)) / 1e5:.0f}"),
        ("a site", f"{len(labels):,} labels, all reported", f"{_bytes_of(lambda: _site(labels, 1)) / 1e5:.0f}"),
        ("a coordinator", "10 sites, 1,000,000 pairs", f"{_bytes_of(lambda: _coordinator(labels)) / 1e6:.0f}"),
    ]
    rows.append(("a state file", "10 sites, 1,000,000 pairs", f"{_file_bytes(labels) / 1e6:.0f}, with its name"))
    yield Table("families-memory", ("where", "what", "bytes for each label of a site, without its name"), rows)


def _file_bytes(labels: list[str]) -> int:
    """Of the SQLite file of a coordinator, which has the name of the label in each row."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state"
        store, before = SqliteStore(path), process_time()
        fields = FamilyFields(1, Steps(), 10, 10**9, 0)
        counts = {label: 1000 + number for number, label in enumerate(labels)}
        for number in range(10):
            site_id = SiteId(f"web-{number}", (1_763_000_000 << 30) + number)
            rows: KeyRows = {
                "spec": alone(FamilyRule(LABELLED, 0.01)),
                "state": alone(fields),
                "member": [row_of(site_id, MemberFields(Steps(), 10**8))],
                "label": [("", 0, label, n) for label, n in counts.items()],
                "count": [(str(site_id.site), site_id.incarnation, label, n) for label, n in counts.items()],
            }
            store.save(Changes({Key(FAMILY, "requests"): rows}))
        store.checkpoint()
        store.close()
        print(f"saved in {process_time() - before:.1f} s of processor time")
        return path.stat().st_size


def _site(labels: list[str], reported: int) -> FamilySite:
    site = FamilySite("f", cap=len(labels))
    site.steps = site.steps._replace(label=2 - reported, total=10**9)
    for number, label in enumerate(labels):
        site.add(label, 1 + reported * (1000 + number))
    return site


def _coordinator(labels: list[str]) -> FamilyCoordinator:
    fleet = [SiteId(number) for number in range(10)]
    coordinator = FamilyCoordinator("f", CertainSteps(0.01), fleet=fleet)
    for site_id in fleet:
        for number, label in enumerate(labels):
            coordinator.receive(site_id, LabelReport("f", 0, ((label, 1000 + number),), 0))
    return coordinator


def _bytes_of(make: Callable[[], Any]) -> int:
    tracemalloc.start()
    kept = make()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


# Distributions

HOUR_S = 3600.0
QUANTILES = (0.5, 0.9, 0.99)
ACCURACY = 0.01
PROMETHEUS_EDGES = np.array([0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, np.inf])
CHECKS = tuple(int(EVENTS * share) for share in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0))


class Observations:
    """An hour of latencies in seconds, log-normal; in the middle a tenth of the sites becomes ten times slower."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.sites = rng.integers(0, SITES, EVENTS)
        self.times = np.arange(EVENTS) * HOUR_S / EVENTS
        self.values = np.exp(rng.normal(np.log(0.05), 1.0, EVENTS))
        slow = (self.sites < SITES // 10) & (self.times > HOUR_S / 2)
        self.values[slow] *= 10
        self.phases = rng.random(SITES)
        base = np.log((1 + ACCURACY) / (1 - ACCURACY))
        self.buckets = np.ceil(np.log(self.values) / base).astype(int)
        self.sorted = {check: np.sort(self.values[:check]) for check in CHECKS}

    def rank_error(self, check: int, q: float, estimate: float) -> float:
        """Of the nearest value within the accuracy of the buckets, beside all observations."""
        ordered = self.sorted[check]
        low, high = np.searchsorted(ordered, [estimate * (1 - ACCURACY), estimate * (1 + ACCURACY)])
        return float(max(0.0, low - q * check, q * check - high) / check)

    def flushed(self, check: int, period_s: float) -> "np.ndarray[Any, Any]":
        """Which observations are known: those before the last flush of their site."""
        now = self.times[check - 1]
        phase = self.phases[self.sites[:check]] * period_s
        known: np.ndarray[Any, Any] = self.times[:check] < (now - phase) // period_s * period_s + phase
        return known


class SizedSite(BucketSite):
    """Adds up the bytes of its messages."""

    __slots__ = ()
    sent_bytes = 0

    def _reports(self, labels: list[str]) -> tuple[LabelReport, ...]:
        reports = super()._reports(labels)
        for report in reports:
            counts = {int(label): count for label, count in report.counts}
            SizedSite.sent_bytes += len(msgspec.msgpack.encode((report.round, report.total, counts)))
        return reports


def distributions() -> Iterator[Table]:
    data = Observations(seed=1)
    rows = [_ours(data, epsilon) for epsilon in (0.02, 0.01)]
    rows += [_ddsketch(data, period_s) for period_s in (1, 10, 60)]
    rows += [_prometheus(data, period_s) for period_s in (15, 60)]
    columns = (
        "what",
        "messages",
        "bytes",
        "rank error, proved",
        *(f"p{100 * q:.0f}: worst rank error" for q in QUANTILES),
    )
    yield Table("families-quantiles", columns, rows)


def _ours(data: Observations, epsilon: float) -> tuple[str, ...]:
    tracked = Distribution(SITES, epsilon, ACCURACY)
    for site_id in tracked._world.sites:
        tracked._world.sites[site_id] = SizedSite("distribution")
    SizedSite.sent_bytes = 0
    sites, worst = [tracked.site(name) for name in range(SITES)], dict.fromkeys(QUANTILES, 0.0)
    for number, (site, value) in enumerate(zip(data.sites.tolist(), data.values.tolist(), strict=True), start=1):
        sites[site].observe(value)
        if number in CHECKS:
            for q in QUANTILES:
                quantile = tracked.quantile(q)
                assert quantile is not None
                worst[q] = max(worst[q], data.rank_error(number, q, quantile.estimate))
    size = SizedSite.sent_bytes + 12 * tracked.messages.down
    return _row(f"`Distribution`, epsilon {epsilon:.1%}", tracked.messages.total, size, f"{epsilon:.1%}", worst)


def _ddsketch(data: Observations, period_s: float) -> tuple[str, ...]:
    worst = dict.fromkeys(QUANTILES, 0.0)
    buckets = Buckets(ACCURACY)
    for check in CHECKS:
        known = np.sort(data.buckets[:check][data.flushed(check, period_s)])
        for q in QUANTILES:
            estimate = buckets.middle(int(known[min(len(known) - 1, int(q * len(known)))])) if len(known) else 0.0
            worst[q] = max(worst[q], data.rank_error(check, q, estimate))
    flush = np.floor((data.times - data.phases[data.sites] * period_s) / period_s).astype(int) + 1
    order = np.lexsort((data.buckets, data.sites, flush))
    number, size = 0, 0
    edges = np.flatnonzero(np.diff(flush[order]) | np.diff(data.sites[order])) + 1
    for part in np.split(data.buckets[order], edges):
        indices, counts = np.unique(part, return_counts=True)
        size += len(msgspec.msgpack.encode((0, 0, dict(zip(indices.tolist(), counts.tolist(), strict=True)))))
        number += 1
    return _row(f"DDSketch, changes sent every {period_s:.0f} s", number, size, "", worst)


def _prometheus(data: Observations, period_s: float) -> tuple[str, ...]:
    worst = dict.fromkeys(QUANTILES, 0.0)
    for check in CHECKS:
        values = data.values[:check][data.flushed(check, period_s)]
        below = np.array([np.count_nonzero(values <= edge) for edge in PROMETHEUS_EDGES])
        for q in QUANTILES:
            estimate = _histogram_quantile(below, q) if len(values) else 0.0
            worst[q] = max(worst[q], data.rank_error(check, q, estimate))
    lines = [f'request_seconds_bucket{{le="{edge}"}} {EVENTS // SITES // 2}\n' for edge in PROMETHEUS_EDGES]
    lines += [f"request_seconds_sum {1234.5678}\n", f"request_seconds_count {EVENTS // SITES // 2}\n"]
    scrapes = int(HOUR_S / period_s) * SITES
    name = f"Prometheus histogram, scraped every {period_s:.0f} s"
    return _row(name, scrapes, scrapes * len("".join(lines)), "", worst)


def _histogram_quantile(below: "np.ndarray[Any, Any]", q: float) -> float:
    """Linear between the edges, as in PromQL."""
    rank = q * below[-1]
    index = int(np.searchsorted(below, rank))
    if index == len(below) - 1:
        return float(PROMETHEUS_EDGES[-2])
    low, before = (0.0, 0) if index == 0 else (float(PROMETHEUS_EDGES[index - 1]), int(below[index - 1]))
    share = (rank - before) / max(1, int(below[index]) - before)
    return low + (float(PROMETHEUS_EDGES[index]) - low) * float(share)


def _row(name: str, number: int, size: int, proved: str, worst: dict[float, float]) -> tuple[str, ...]:
    row = (name, f"{number:,}", f"{size:,}", proved, *(f"{error:.2%}" for error in worst.values()))
    print(*row, flush=True)
    return row


def main() -> Iterator[Table]:
    yield from adversaries()
    yield from memory()
    yield from traces()
    yield from distributions()
    yield from messages()
