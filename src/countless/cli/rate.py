"""`countless rate`: events per second, with bounds."""

import json
from typing import Annotated

import typer

from countless.cli.coordinator import coordinator
from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.answers import parse_rolling
from countless.core.parameters import require_rolling

EXAMPLE = "Example:  countless rate requests --rolling 5m"


def rate(
    name: Annotated[str, typer.Argument(help="The counter.")],
    rolling: Annotated[str, typer.Option(help="Average over the last 30s, 5m, 1h, 7d ...")] = "5m",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Read how many events per second there are now."""
    require_rolling("rolling", rolling)
    answer = coordinator(url, token).answer(name, rolling=rolling)
    print(json.dumps(answer) if as_json else parse_rolling(answer).rate)
