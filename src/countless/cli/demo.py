"""`countless demo`: one counter, two trackers, first ordinary traffic and then traffic that reacts to the answers."""

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from countless.core.answer import Answer
from countless.randomness import SeededDice
from countless.tracker import Tracker

EXAMPLE = "Example:  countless demo --sites 1024 --seed 7"
CONTESTANTS = {"classical": "hyz", "deterministic": "deterministic", "countless": "auto"}


class Run:
    """A tracker, and the worst it has been; judged after every event."""

    def __init__(self, tracker: Tracker, alpha: float) -> None:
        self.tracker = tracker
        self.total = 0
        self.estimate = 0.0
        self.worst = 0.0
        self._alpha = alpha
        tracker.on_change(self._hear)

    def _hear(self, answer: Answer) -> None:
        self.estimate = answer.estimate

    def add(self, site: int) -> float:
        """One event; the published estimate afterwards."""
        self.tracker.site(site).add()
        self.total += 1
        self.worst = max(self.worst, abs(self.estimate / self.total - 1) / self._alpha)
        return self.estimate


def demo(
    sites: Annotated[int, typer.Option(help="How many sites count.", min=2)] = 1024,
    alpha: Annotated[float, typer.Option(help="Relative error allowed, between 0 and 1/2.")] = 0.01,
    events: Annotated[int, typer.Option(help="Ordinary events before the attack.", min=1000)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same demo.")] = 7,
) -> None:
    """Show a total that holds its bound while the classical tracker is led out of it."""
    console = Console()
    console.print(f"{sites:,} sites count; the answer must stay within {alpha:.1%} of the truth.\n")
    table = Table("tracker", "traffic", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("events", "messages", "error/alpha"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for name, scheme in CONTESTANTS.items():
        run = Run(Tracker(sites, alpha, scheme=scheme, seed=seed), alpha)
        for traffic, play in (("ordinary", _ordinary), ("reacting", _stop_after_jump)):
            run.worst = 0.0
            play(run, sites, events, SeededDice(seed).split("traffic"))
            table.add_row(*_row(name, traffic, run), style="red" if _broken(run) else "green")
            console.print(f"{name}, {traffic} traffic: worst error {run.worst:.2f} x alpha")
    console.print()
    console.print(table)
    console.print(
        "Reacting traffic feeds one site until the answer moves, then leaves it and goes on to the next. It sees the "
        "answers and nothing else. Errors of up to 1 x alpha are what was promised."
    )


def _ordinary(run: Run, sites: int, events: int, dice: SeededDice) -> None:
    """Events at random sites."""
    while run.total < events:
        run.add(dice.below(sites))


def _stop_after_jump(run: Run, sites: int, events: int, dice: SeededDice) -> None:
    """The attack of the arena: every site is left at the very event at which it was just overestimated."""
    for site in range(sites):
        before = run.estimate
        for _ in range(events // sites):
            if run.add(site) != before:
                break


def _broken(run: Run) -> bool:
    return run.worst > 1 + 1e-9  # the bound itself may be met: doubles are rounded


def _row(name: str, traffic: str, run: Run) -> list[str]:
    verdict = "broken" if _broken(run) else "holds"
    return [name, traffic, f"{run.total:,}", f"{run.tracker.messages.total:,}", f"{run.worst:.2f}", verdict]
