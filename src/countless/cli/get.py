"""`countless get`: a total, a window or a rolling count, with bounds."""

import json
from typing import Annotated

import typer

from countless.cli.coordinator import coordinator
from countless.cli.options import DEFAULT_URL, Json, Rolling, Token, Url, Window, require_at_most_one
from countless.client.answers import parse_rolling, parse_total, parse_window

EXAMPLE = "Example:  countless get requests --window today"


def get(
    name: Annotated[str, typer.Argument(help="The counter.")],
    window: Window = None,
    rolling: Rolling = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Read a counter: its total, a window, or the last 15 minutes.

    Every counter has rolling counts. One with windows also has: now, last,
    this-hour, last-hour (or minute, day, month), today, yesterday, a date
    such as 2026-11-16, or a time such as 2026-11-16T10:30 for the window
    that contains it.
    """
    query = require_at_most_one(window=window, rolling=rolling)
    answer = coordinator(url, token).answer(name, **query)
    if as_json:
        print(json.dumps(answer))
    else:
        parse = parse_window if "window" in query else parse_rolling if "rolling" in query else parse_total
        print(parse(answer))
