"""`countless health`: does the coordinator of this machine respond? For containers and service managers."""

import json
from http.client import HTTPException
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example:  countless health --ready"


def health(
    url: Annotated[
        str | None,
        typer.Option(help="Ask the coordinator at this address.", show_default="on this machine, as serve is set"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Read the settings of countless serve from this TOML file.")
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Demand, too, that it can save and knows all totals again.")
    ] = False,
) -> None:
    """Exit with 0 if the coordinator responds, and with 1 if it doesn't.

    It needs no token, and works with TLS. For containers and service
    managers.
    """
    from countless.client.transport.endpoint import Endpoint
    from countless.probe import local_url, probe, probe_local
    from countless.server.settings import load_settings

    path = "/readyz" if ready else "/livez"
    settings = load_settings({}, file=config)
    if url is not None:
        url = Endpoint.parse(url).base
    try:
        status, text = probe(url, path) if url else probe_local(settings, path)
    except (OSError, HTTPException) as error:
        typer.echo(f"countless: no answer from {url or local_url(settings)}: {error}", err=True)
        raise typer.Exit(1) from None
    if status != 200:
        problems = ", ".join(json.loads(text).get("problems", ())) if status == 503 else f"status {status}"
        typer.echo(f"countless: not ready: {problems}", err=True)
        raise typer.Exit(1)
    print("ready" if ready else "alive")
