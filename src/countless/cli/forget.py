"""`countless forget`: remove all sites that were silent for long. For operators."""

import json
from typing import Annotated
from urllib.parse import quote

import typer

from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.api import ApiClient

EXAMPLE = "Example:  countless forget --older-than 30d"


def forget(
    older_than: Annotated[
        str, typer.Option(help="Remove sites that are not connected and were silent for so long, such as 12h or 30d.")
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Remove sites that will not return; their last reported counts stay in the totals."""
    result = ApiClient(url, token).request("DELETE", f"/api/v1/sites?silent_for={quote(older_than)}")
    print(json.dumps(result) if as_json else f"{result['forgotten']} removed")
