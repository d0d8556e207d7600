"""`countless demo`: one counter, two trackers, first ordinary traffic and then traffic that reacts to the answers."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from countless.randomness import SeededDice
from countless.tracker import Tracker

EXAMPLE = "Example:  countless demo --sites 1024 --seed 7"
CONTESTANTS = {"classical (hyz)": "hyz", "deterministic": "deterministic", "countless (auto)": "auto"}


class Run:
    """A tracker, and the worst it has been."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.total = 0
        self.worst = 0.0

    def add(self, site: int, n: int = 1) -> float:
        """Feed a site; the published estimate afterwards."""
        self.tracker.site(site).add(n)
        self.total += n
        estimate = self.tracker.answer.estimate
        self.worst = max(self.worst, abs(estimate / self.total - 1) / self.tracker.answer.alpha)
        return estimate


def demo(
    sites: Annotated[int, typer.Option(help="How many sites count.", min=2)] = 1024,
    alpha: Annotated[float, typer.Option(help="Relative error allowed, between 0 and 1/2.")] = 0.01,
    events: Annotated[int, typer.Option(help="Ordinary events before the attack.", min=1000)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same demo.")] = 7,
) -> None:
    """Show a total that holds its bound while the classical tracker is led out of it."""
    console = Console()
    console.print(f"{sites:,} sites count; the answer must stay within {alpha:.1%} of the truth.\n")
    table = Table("tracker", "phase", "events", "messages", "answer", "truth", "worst error / alpha", "verdict")
    for name, scheme in CONTESTANTS.items():
        run = Run(Tracker(sites, alpha, scheme=scheme, seed=seed))
        for phase, traffic in (("ordinary", _ordinary), ("reacting", _stop_after_jump)):
            run.worst = 0.0
            for _ in traffic(run, sites, events, SeededDice(seed).split("traffic")):
                pass
            table.add_row(*_row(name, phase, run), style="red" if run.worst > 1 else "green")
            console.print(f"{name}, {phase} traffic: worst error {run.worst:.2f} x alpha")
    console.print()
    console.print(table)
    console.print(
        "\nReacting traffic feeds one site until the answer moves, then leaves it and goes on to the next. It sees the "
        "answers and nothing else."
    )


def _ordinary(run: Run, sites: int, events: int, dice: SeededDice) -> Iterator[float]:
    """Bursts of random length at random sites."""
    while run.total < events:
        yield run.add(dice.below(sites), 1 + dice.below(99))


def _stop_after_jump(run: Run, sites: int, events: int, dice: SeededDice) -> Iterator[float]:
    """The attack of the arena: every site is left at the very event at which it was just overestimated."""
    for site in range(sites):
        before = run.tracker.answer.estimate
        for _ in range(4 * events // sites):
            if run.add(site) != before:
                break
            yield before


def _row(name: str, phase: str, run: Run) -> list[str]:
    answer, messages = run.tracker.answer, run.tracker.messages.total
    verdict = "holds" if run.worst <= 1 else "out of its bound"
    estimate, truth = f"{answer.estimate:,.0f}", f"{run.total:,}"
    return [name, phase, truth, f"{messages:,}", estimate, truth, f"{run.worst:.2f}", verdict]
