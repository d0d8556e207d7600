"""The search keeps within every bound, comes close to most, and finds a mistake for each row."""

import re
from collections.abc import Callable
from inspect import getsource
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from countless.agent.intake import Intake
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import BucketSite, Ranks
from countless.core.family.rule import CertainSteps
from countless.core.family.site import FamilySite
from countless.core.floor import BelowFloor
from countless.core.periods.rolling import PastTotals
from countless.core.periods.site import SitePeriods
from countless.core.rounds import Rounds
from countless.core.site import Site
from countless.core.triggers import GeometricGrowth
from countless.inprocess.budget import Budget
from countless.inprocess.windows import TrackedWindows
from countless.inprocess.world import Traffic
from countless.schemes.deterministic import DeterministicEstimator
from countless.server.http.answers import sums as service_sums
from countless_lab.tightness import budgets
from countless_lab.tightness.groups import GROUPS
from countless_lab.tightness.search import ABOVE, MAX_OPERATIONS, search, shortest

ROOT = Path(__file__).parents[3]
CLAIMS = (ROOT / "design" / "claims.md").read_text()
ROWS = [(group, row) for group, (made, _) in GROUPS.items() for row in made.rows]


class Mutant(NamedTuple):
    """A text of a method that is replaced by another, and the rows that may find it within a number of runs."""

    group: str
    rows: str
    owner: type[Any] | ModuleType
    method: str
    old: str
    new: str
    runs: int = 300


MIDDLE = "midpoint(self._down * most, self._up * least, self._unit)"
MUTANTS = {
    "publishes the most": Mutant(
        "counters", "C2|C11", DeterministicEstimator, "_update_estimate", MIDDLE, "float(most)"
    ),
    "half of what sites may hide": Mutant(
        "counters", "C1|C2|C74", DeterministicEstimator, "_set_most", "most - site.most\n", "(most - site.most) // 2\n"
    ),
    "hides nothing": Mutant(
        "counters", "C1|C74", DeterministicEstimator, "_add", "self._most += site.most", "self._most += count"
    ),
    "growth too large": Mutant(
        "counters", "C2|C73|C74", GeometricGrowth, "next_point", "self.extra + 1", "self.extra + 2"
    ),
    "publishes what falls": Mutant("counters", "C11 falls", Rounds, "_publish", "estimate > self.published", "True"),
    "forgets what a leaving site adds": Mutant(
        "counters", "C13", Rounds, "leave", "entry.reported = max(before, final.count)", "entry.reported = before"
    ),
    "two snapshots": Mutant(
        "counters", "C15", Site, "receive", "return (self.snapshot(),)", "return (self.snapshot(), self.snapshot())"
    ),
    "reports twice": Mutant(
        "counters",
        "C54|C67",
        Site,
        "advance",
        "return (Report(self.counter, self.round, state.last, self.crossings),)",
        "return (Report(self.counter, self.round, state.last, self.crossings),) * 2",
    ),
    "publishes the most below the floor": Mutant(
        "counters",
        "C64",
        BelowFloor,
        "_update_estimate",
        "midpoint(low, high, self._unit)",
        "self._most",
    ),
    "forgets the total": Mutant(  # it was in a release
        "families",
        "C75 bounds|C75 total",
        FamilySite,
        "_report",
        "return ()",
        "self._pending_total = 0; return ()",
        600,
    ),
    "labels reported late": Mutant(
        "families", "C75 bounds", FamilySite, "_count", "pending < self.steps.label", "pending <= self.steps.label"
    ),
    "steps too large": Mutant(
        "families", "C75 label|C75 total", CertainSteps, "steps", "min(known, MAX_KNOWN) / sites", "2 * known / sites"
    ),
    "lists only what is known": Mutant(
        "families", "C76 missing", FamilyCoordinator, "top", "self._held_back.label", "0"
    ),
    "lists too much": Mutant(
        "families", "C76 listed", FamilyCoordinator, "top", "self._held_back.label", "2 * self._held_back.label"
    ),
    "reports six times": Mutant(
        "families", "C77", FamilySite, "_report", "return self._reports(labels)", "return self._reports(labels) * 6"
    ),
    "counts are added": Mutant(
        "families", "C78", FamilyCoordinator, "_merge", "member.counts[label] = count\n", "pass\n"
    ),
    "ranks without what is hidden": Mutant("families", "C81 bounds", Ranks, "rank", "until + self._held_back", "until"),
    "quantiles without what is hidden": Mutant(
        "families", "C81 bounds", Ranks, "quantile", "lowest = highest - held_back", "lowest = highest"
    ),
    "quantiles of half the rank": Mutant(
        "families", "C81 rank", Ranks, "quantile", "self._at(ceil(share * known))", "self._at(ceil(share * known / 2))"
    ),
    "buckets reported late": Mutant(
        "families", "C81 bounds", BucketSite, "_start_round", "< self.steps.total", "< 2 * self.steps.total"
    ),
    "edge in the window before": Mutant(
        "windows", "C66 window|C68", SitePeriods, "enter", "<= now < self.ends_at", "<= now <= self.ends_at", 40
    ),
    "records that are too new": Mutant(
        "windows", "C66 spans", PastTotals, "count", "- self._least_at(start)", "- most_at_start", 40
    ),
    "forgets closed windows": Mutant(
        "windows", "C65", TrackedWindows, "_close", "self._settled += total.total", "pass", 40
    ),
    "estimates as bounds of a sum": Mutant(
        "sums", "C86 sum", service_sums, "summed", "sum(each.lower for", "sum(each.estimate for", 40
    ),
    "lists only what is certain": Mutant(
        "sums", "C86 missing", service_sums, "top_answer", "if each.upper >= least", "if each.lower >= least", 40
    ),
    "lists parts of half the share": Mutant(
        "sums", "C86 listed", service_sums, "top_answer", "least_with(share, total", "least_with(share / 2, total", 40
    ),
    "shares of a hundredth": Mutant(
        "budgets", "C52", BudgetCoordinator, "_current_share", "(100 * holders)", "(10000 * holders)", 400
    ),
    "believes an older copy": Mutant(
        "restores", "C72", BudgetCoordinator, "restore", "self.restoring = True", "self.restoring = False", 40
    ),
    "rounds sampled lines down": Mutant(
        "sums", "C44", Intake, "_count", "(series.name, _HALF)", "(series.name, 0)", 40
    ),
}


def mutated(mutant: Mutant, patch: pytest.MonkeyPatch) -> None:
    found = mutant.owner.__dict__[mutant.method]
    function: Any = found.fget if isinstance(found, property) else found
    source = dedent(getsource(function))
    assert source.count(mutant.old) == 1, source
    if "super()" in source:
        source = source.replace("super()", f"super({mutant.owner.__name__}, self)")
    space: dict[str, Any] = {}
    changed = "from __future__ import annotations\n" + source.replace(mutant.old, mutant.new)
    exec(changed, function.__globals__, space)  # noqa: S102
    patch.setattr(mutant.owner, mutant.method, space[mutant.method])


@pytest.mark.parametrize("name", MUTANTS)
def test_search_finds_the_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutated(mutant, monkeypatch)
    found = {each.row.name for each in search(GROUPS[mutant.group][0], mutant.runs, 1, first=True) if each.broken}
    assert found & set(mutant.rows.split("|")), found


class SendsTwice(Budget):
    @property
    def messages(self) -> Traffic:
        once = super().messages
        return Traffic(2 * once.up, 2 * once.down)


# A program's view of a budget is all that is changed, so that these do not depend on how the core is written.
BUDGET_MUTANTS: dict[str, tuple[str, Callable[..., Budget]]] = {
    "one unit too many": (
        "C50|C55|C57|C70",
        lambda limit, sites, slack, **more: Budget(limit + 1, sites, slack, **more),
    ),
    "refuses early": (
        "C51|C71",
        lambda limit, sites, slack, **more: Budget(limit - limit // 8 - 1, sites, slack, **more),
    ),
    "sends twice": ("C52 small|C111", SendsTwice),
}


@pytest.mark.parametrize("name", BUDGET_MUTANTS)
def test_search_finds_the_mutant_of_a_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, made = BUDGET_MUTANTS[name]
    monkeypatch.setattr(budgets, "Budget", made)
    found = {each.row.name for each in search(GROUPS["budgets"][0], 400, 1) if each.broken}
    assert found == set(rows.split("|"))


def test_every_row_has_a_mutant() -> None:
    covered = {row for mutant in MUTANTS.values() for row in mutant.rows.split("|")}
    covered |= {row for rows, _ in BUDGET_MUTANTS.values() for row in rows.split("|")}
    assert {row.name for _, row in ROWS} <= covered


@pytest.mark.parametrize(
    ("group", "scale"),
    [("counters", 0.2), ("windows", 0.2), ("families", 0.2), ("sums", 0.2), ("budgets", 0.2), ("restores", 0.2)],
)
def test_search_stays_within_every_bound(group: str, scale: float) -> None:
    check(group, scale, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("seed", range(2, 12))
def test_long_search_stays_within_every_bound(group: str, seed: int) -> None:
    check(group, 10.0, seed)


def check(group: str, scale: float, seed: int) -> None:
    made, runs = GROUPS[group]
    for each in search(made, int(scale * runs), seed):
        assert not each.broken, f"{each.row} {each.ratio}: {shortest(made, each.run, each.row.name, ABOVE)}"


def test_same_seed_finds_the_same() -> None:
    made, _ = GROUPS["budgets"]
    first, again = (search(made, 60, 3) for _ in range(2))
    assert [(each.ratio, each.run) for each in first] == [(each.ratio, each.run) for each in again]
    assert all(len(each.run[1]) <= MAX_OPERATIONS for each in first)


def test_shortest_run_has_the_same_ratio() -> None:
    made, _ = GROUPS["budgets"]
    worst = search(made, 40, 1)[1]
    short = shortest(made, worst.run, worst.row.name)
    assert len(short[1]) <= len(worst.run[1])
    assert made.play(short)[worst.row.name] >= worst.ratio


def test_certain_claim_has_a_row_or_a_reason() -> None:
    parts = re.split(r"^### (C\d+) ", CLAIMS, flags=re.MULTILINE)
    certain = {name for name, text in zip(parts[1::2], parts[2::2], strict=True) if "**Kind.** *certain*" in text}
    reasons = set(re.findall(r"C\d+", "".join(re.findall(r"^\| (C\d[C\d, ]*) \| [^|]+ \|$", CLAIMS, re.MULTILINE))))
    rows = {claim for _, row in ROWS for claim in row.claim.split(", ")}
    assert certain - rows == reasons


def test_ratios_of_every_row_are_on_the_page_of_claims() -> None:
    table = CLAIMS.split("<!-- bench:tightness -->")[1].split("<!-- /bench -->")[0]
    rows = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in table.splitlines()[3:]]
    assert [cells[:2] for cells in rows] == [[row.claim, row.bound] for _, row in ROWS]
    for cells, (_, row) in zip(rows, ROWS, strict=True):
        if row.equality:
            assert cells[2] == "0 times"
        else:
            assert (0 if row.why else 0.5) < float(cells[2]) <= 1
