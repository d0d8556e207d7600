"""`countless sites`: who counts, and who has fallen silent. For operators."""

import json
from typing import Annotated
from urllib.parse import quote

import typer

from countless.cli.options import DEFAULT_URL, Json, Token, Url, reader

EXAMPLE = "Example:  countless sites --forget web-17"


def sites(
    forget: Annotated[
        str | None, typer.Option(help="Give up this site, if it is away; its last known counts stay.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List the sites, or give one up that will not come back."""
    if forget is not None:
        result = reader(url, token).request("DELETE", f"/api/v1/sites/{quote(forget)}")
        print(json.dumps(result) if as_json else f"{result['forgotten']} given up")
        return
    found = reader(url, token).request("GET", "/api/v1/sites")["sites"]
    if as_json:
        print(json.dumps(found))
        return
    for site in found:
        heard = site["seconds_since_heard"]
        print(f"{site['site']}: {site['state']}, {site['counters']} counters, last heard {heard:.1f} s ago")
