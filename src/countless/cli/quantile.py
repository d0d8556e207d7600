"""`countless quantile`: values of a distribution, with bounds."""

import json
from typing import Annotated

import typer

from countless.cli.coordinator import coordinator
from countless.cli.numbers import quantile_share
from countless.cli.options import DEFAULT_URL, Json, Token, Url, Window
from countless.client.answers import parse_quantiles

EXAMPLE = "Example:  countless quantile latency_ms p50 p99"


def quantile(
    name: Annotated[str, typer.Argument(help="The distribution.")],
    shares: Annotated[list[str] | None, typer.Argument(help="Which: p99, 99% or 0.99; p50 is the median.")] = None,
    window: Window = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Read quantiles of a distribution: p50, p90 and p99 by default.

    Windows are as for `countless get`.
    """
    wanted = [repr(quantile_share(share)) for share in shares or ()]
    answer = coordinator(url, token).quantiles(name, *wanted, window=window)
    print(json.dumps(answer) if as_json else parse_quantiles(answer))
