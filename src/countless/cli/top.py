"""`countless top`: who is it? The labelled series with the largest share of a counter."""

import json
import sys
from time import sleep
from typing import Annotated

import typer

from countless.cli.numbers import share as parse_share
from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.answers import parse_top
from countless.client.api import ApiClient
from countless.errors import InvalidParameter

EXAMPLE = "Example:  countless top requests --share 2% --rolling 5m --live"
_REFRESH_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"


def top(
    name: Annotated[str, typer.Argument(help="The counter.")],
    share: Annotated[str, typer.Option(help="The least share of the counter's count: 2% or 0.02.")] = "2%",
    window: Annotated[
        str | None,
        typer.Option(help="For counters and families with windows: now, last, today ... as `countless get`."),
    ] = None,
    rolling: Annotated[str | None, typer.Option(help="Of the last so many minutes: 30s, 15m, 1h ...")] = None,
    live: Annotated[bool, typer.Option("--live", help="Show it again every second, until it is interrupted.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List the labelled series that may have a share of a counter's count, with bounds: who is it?"""
    if window is not None and rolling is not None:
        raise InvalidParameter("window", window, "left out with rolling")
    query = {"share": repr(parse_share("share", share)), "window": window, "rolling": rolling}
    client, given = ApiClient(url, token), {name: value for name, value in query.items() if value is not None}
    while True:
        answer = client.top(name, **given)
        shown = json.dumps(answer) if as_json else str(parse_top(answer))
        print((_CLEAR if live and sys.stdout.isatty() else "") + shown, flush=True)
        if not live:
            return
        sleep(_REFRESH_S)
