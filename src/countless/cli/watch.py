"""`countless watch`: answers as they change; with `--over`, until the total is certainly over a threshold."""

import json
from typing import Annotated

import typer

from countless.cli.coordinator import coordinator
from countless.cli.numbers import number_of_units
from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.answers import parse_total
from countless.client.watch import follow
from countless.core.answer import Threshold, Verdict

EXAMPLE = "Example:  countless watch requests --over 1000000 && echo passed"


def watch(
    name: Annotated[str, typer.Argument(help="The counter.")],
    over: Annotated[str | None, typer.Option(help="Stop once the lower bound is over this, such as 1M.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Print a counter's total now and whenever it changes.

    It survives a restart of the coordinator. With --over, it exits with 0
    once the lower bound is over the threshold.
    """
    threshold = None if over is None else Threshold(number_of_units("over", over))
    last: Verdict | None = None
    for answer in follow(coordinator(url, token), name, _say_lost):
        print(json.dumps(answer) if as_json else parse_total(answer), flush=True)
        if threshold is None:
            continue
        for verdict in threshold.new_verdicts(last, answer["lower"], answer["upper"]):
            typer.echo(f"{verdict} over {threshold.over:,}", err=True)
            last = verdict
        if last == "certainly":
            return


def _say_lost(reason: str) -> None:
    typer.echo(f"countless: {reason}; trying again until the coordinator is back", err=True)
