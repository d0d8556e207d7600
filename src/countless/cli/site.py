"""List the sites of a coordinator, and forget those that are gone.

Forgetting needs a token of scope operator, if there are tokens.
"""

import json
from typing import Annotated
from urllib.parse import quote

import typer

from countless.cli.coordinator import coordinator
from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.core.parameters import require_duration

_PATH = "/api/v1/sites"
app = typer.Typer(help=__doc__)


@app.command("list", epilog="Example:  countless site list --json")
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> None:
    """List all sites with their states."""
    found = coordinator(url, token).request("GET", _PATH)["sites"]
    if as_json:
        print(json.dumps(found))
        return
    if not found:
        print("no sites: no program is connected")
    for site in found:
        age = site["seconds_since_heard"]
        print(f"{site['site']}: {site['state']}, {site['counters']} counters, last seen {age:.1f} s ago")


@app.command(epilog="Example:  countless site forget web-17")
def forget(
    name: Annotated[str | None, typer.Argument(help="The site.")] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Instead: forget all sites that were silent this long: 12h, 30d ...")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Forget a site that won't return, or all that were silent for long.

    Only sites that aren't connected. Their last reported counts stay in the
    totals. Exits with 1 if there is no site of that name.
    """
    if (name is None) is (older_than is None):
        raise typer.TyperException("give the name of a site or --older-than, and not both")
    if older_than is not None:
        require_duration("older-than", older_than, "1s", "3650d")
    which = f"?silent_for={quote(older_than)}" if older_than is not None else f"/{quote(name or '')}"
    result = coordinator(url, token).request("DELETE", _PATH + which)
    none = "" if name is None or result["forgotten"] else f": there is no site {name!r}"
    print(json.dumps(result) if as_json else f"{result['forgotten']} removed{none}")
    raise typer.Exit(1 if none else 0)
