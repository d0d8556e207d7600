"""`countless get`: a total, a window or a rolling count, with bounds."""

import json
from typing import Annotated

import typer

from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.answers import parse_rolling, parse_total, parse_window
from countless.client.api import ApiClient
from countless.errors import InvalidParameter

EXAMPLE = "Example:  countless get requests --window today"


def get(
    name: Annotated[str, typer.Argument(help="The counter.")],
    window: Annotated[
        str | None,
        typer.Option(
            help="For a counter with windows: now, last, this-hour, last-hour (also minute, day, month), today, "
            "yesterday, a date such as 2026-11-16, or a time such as 2026-11-16T10:30 for the window that contains it."
        ),
    ] = None,
    rolling: Annotated[
        str | None, typer.Option(help="The last so many minutes, for every counter: 30s, 15m, 1h, 7d ...")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Read a counter: how many ever, this hour, yesterday (--window), or in the last 15 minutes (--rolling)."""
    if window is not None and rolling is not None:
        raise InvalidParameter("window", window, "left out with rolling")
    query = {key: value for key, value in (("window", window), ("rolling", rolling)) if value is not None}
    answer = ApiClient(url, token).answer(name, **query)
    if as_json:
        print(json.dumps(answer))
    else:
        parse = parse_window if window is not None else parse_rolling if rolling is not None else parse_total
        print(parse(answer))
