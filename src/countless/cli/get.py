"""`countless get`: a total with its bounds."""

import json
from typing import Annotated

import typer

from countless.cli.options import DEFAULT_URL, Json, Token, Url, describe
from countless.client.api import ApiClient

EXAMPLE = "Example:  countless get requests --json"


def get(
    name: Annotated[str, typer.Argument(help="The counter.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Read a counter."""
    answer = ApiClient(url, token).answer(name)
    print(json.dumps(answer) if as_json else describe(answer))
