"""`python -m race kills`: one limit of 100 requests a minute over three replicas, while things are killed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from countless.client.api import ApiClient
from race.contestants.base import Case
from race.contestants.redis import RedisServer
from race.kills.apps import BUDGET, LIMIT
from race.kills.figure import finding, picture
from race.kills.play import MINUTES, Contestant, Minute, Result, play
from race.limits.contestants.ours import coordinator
from race.options import terminal

ROOT = Path(__file__).parents[2]
MEASURED = Path(__file__).with_name("measured.json")
FIGURE = ROOT / "docs/images/kill.svg"


def kills(
    minutes: Annotated[int, typer.Option(min=1, max=MINUTES, help="How many minutes, on the real clock.")] = MINUTES,
    write: Annotated[bool, typer.Option("--write", help="Write docs/images/kill.svg; needs all minutes.")] = False,
) -> None:
    """Kill the server in minute 3 and a replica in minute 5, for Redis with and without its log, and for Countless."""
    if write and minutes < MINUTES:
        raise typer.BadParameter(f"needs all {MINUTES} minutes", param_hint="--write")
    with contestants() as all_of_them:
        results = play(all_of_them, minutes)
    terminal().print(_table(results))
    print(finding(results))
    if write:
        MEASURED.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n", encoding="utf-8")
        FIGURE.write_text(picture(measured()), encoding="utf-8")


def measured() -> list[Result]:
    """What `--write` measured last."""
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))
    return [Result(row["contestant"], [Minute(**minute) for minute in row["minutes"]]) for row in rows]


@contextmanager
def contestants() -> Iterator[list[Contestant]]:
    """Redis as it is installed, Redis with an append-only file written before each answer, and Countless."""
    memory, logged, ours = RedisServer(Case(1, 1)), RedisServer(Case(1, 1), append_only=True), coordinator()
    try:
        ApiClient(ours.address).request("POST", "/api/v1/budgets", {"name": BUDGET, "limit": LIMIT, "per": "minute"})
        redis_app, countless_app = "race.kills.apps:redis_app", "race.kills.apps:countless_app"
        yield [
            Contestant("Redis", memory, f"redis://127.0.0.1:{memory.address}", redis_app),
            Contestant("Redis, AOF always", logged, f"redis://127.0.0.1:{logged.address}", redis_app),
            Contestant("Countless", ours, ours.address, countless_app),
        ]
    finally:
        for server in (memory, logged, ours):
            server.close()


def _table(results: list[Result]) -> Table:
    table = Table(title=f"Requests admitted / 429 / failed in each minute, limit {LIMIT}", title_justify="left")
    table.add_column("")
    for minute in range(len(results[0].minutes)):
        table.add_column(str(minute + 1), justify="right")
    for result in results:
        table.add_row(result.contestant, *(f"{m.admitted} / {m.refused} / {m.failed}" for m in result.minutes))
    return table
