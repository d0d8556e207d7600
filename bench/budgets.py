"""What a budget costs: messages against the proved bounds and a server, and what is left at the first refusal."""

from collections.abc import Iterator

from bench import budget_games
from countless_lab.arena.budgets import ADVERSARIES, TRAFFIC, play
from tools.tables import Table

FLEETS = ((3, 1_000), (10, 100_000), (100, 1_000_000), (1_000, 1_000_000))  # sites, limit
SLACKS = (0.01, 0.0)
COLUMNS = ("sites", "limit", "slack", "traffic", "to the first refusal", "to the last", "bound", "lower bound", "left")


def main() -> Iterator[Table]:
    yield from tables()
    yield from budget_games.main()


def tables() -> Iterator[Table]:
    rows = []
    for sites, limit in FLEETS:
        for slack in SLACKS:
            for name in (*TRAFFIC, *ADVERSARIES):
                game = play(name, sites, limit, slack)
                left = f"{game.left / (slack * limit):.0%}" if slack else f"{game.left}"
                measured = f"{game.first_refusal:,}", f"{game.messages:,}", f"{game.most_messages:,.0f}"
                lower = f"{game.least_messages:,.0f}" if name == "random-bursts" and slack else ""
                rows.append((f"{sites:,}", f"{limit:,}", f"{slack:.0%}", f"`{name}`", *measured, lower, left))
                print(" ".join(rows[-1]), flush=True)
    yield Table("budgets", COLUMNS, rows)
