"""`countless top`: who is it? The labelled series with the largest share of a counter."""

import json
import sys
from time import sleep
from typing import Annotated, Any

import typer

from countless.cli.coordinator import coordinator
from countless.cli.numbers import share as parse_share
from countless.cli.options import DEFAULT_URL, Json, Rolling, Token, Url, Window, require_at_most_one
from countless.client.answers import parse_top

EXAMPLE = "Example:  countless top requests --limit 10 --rolling 5m --live"
_REFRESH_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"


def top(
    name: Annotated[str, typer.Argument(help="The counter.")],
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Show only this many, the largest.")] = None,
    share: Annotated[str, typer.Option(help="List series that may have this share or more: 2% or 0.02.")] = "2%",
    window: Window = None,
    rolling: Rolling = None,
    live: Annotated[bool, typer.Option("--live", help="Refresh every second, until it is interrupted.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List the labels with the largest share of a counter: who is it?

    No series that has the share is missing. Windows are as for
    `countless get`.
    """
    query = {"share": repr(parse_share("share", share)), **require_at_most_one(window=window, rolling=rolling)}
    client = coordinator(url, token)
    while True:
        answer = client.top(name, **query)
        shown = _text(answer, limit, as_json)
        print((_CLEAR if live and sys.stdout.isatty() else "") + shown, flush=True)
        if not live:
            return
        sleep(_REFRESH_S)


def _text(answer: dict[str, Any], limit: int | None, as_json: bool) -> str:
    shown = answer | {"series": answer["series"][:limit]}
    if as_json:
        return json.dumps(shown)
    hidden = len(answer["series"]) - len(shown["series"])
    return f"{parse_top(shown)}" + (f"\n... and {hidden:,} more" if hidden else "")
