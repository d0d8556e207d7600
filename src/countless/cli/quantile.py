"""`countless quantile`: values of a distribution, with bounds."""

import json
from typing import Annotated

import typer

from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.answers import parse_quantiles
from countless.client.api import ApiClient
from countless.errors import InvalidParameter

EXAMPLE = "Example:  countless quantile latency_ms 0.5 0.99"


def quantile(
    name: Annotated[str, typer.Argument(help="The distribution.")],
    shares: Annotated[list[str] | None, typer.Argument(help="From 0 to 1: 0.5 is the median.")] = None,
    window: Annotated[
        str | None, typer.Option(help="For a distribution with windows: now, last, today ... as for `countless get`.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Print values of a distribution: the median, 0.9 and 0.99, or those of the given shares."""
    for share in shares or ():
        _require_share(share)
    answer = ApiClient(url, token).quantiles(name, *(shares or ()), window=window)
    print(json.dumps(answer) if as_json else parse_quantiles(answer))


def _require_share(share: str) -> None:
    try:
        valid = 0 <= float(share) <= 1
    except ValueError:
        valid = False
    if not valid:
        raise InvalidParameter("q", share, "a number from 0 to 1")
