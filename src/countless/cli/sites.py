"""`countless sites`: the sites and their states. For operators."""

import json
from typing import Annotated
from urllib.parse import quote

import typer

from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.api import ApiClient

EXAMPLE = "Example:  countless sites --forget web-17"


def sites(
    forget: Annotated[
        str | None,
        typer.Option(help="Remove this site, if it is not connected; its last reported counts stay in the totals."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List the sites, or remove one that will not return."""
    if forget is not None:
        result = ApiClient(url, token).request("DELETE", f"/api/v1/sites/{quote(forget)}")
        none = "" if result["forgotten"] else f": there is no site {forget!r}"
        print(json.dumps(result) if as_json else f"{result['forgotten']} removed{none}")
        return
    found = ApiClient(url, token).request("GET", "/api/v1/sites")["sites"]
    if as_json:
        print(json.dumps(found))
        return
    if not found:
        print("no sites: no program is connected")
    for site in found:
        age = site["seconds_since_heard"]
        print(f"{site['site']}: {site['state']}, {site['counters']} counters, last seen {age:.1f} s ago")
