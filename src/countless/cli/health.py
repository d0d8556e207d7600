"""`countless health`: whether the coordinator of this machine responds, for containers and service managers."""

import json
from http.client import HTTPException
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example:  countless health --ready"


def health(
    url: Annotated[
        str | None,
        typer.Option(help="URL of the coordinator. [default: on this machine, with the settings of countless serve]"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The TOML file with the settings of countless serve.")] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Also whether it has learned all totals after a restart, and can save.")
    ] = False,
) -> None:
    """Exit 0 if the coordinator responds, and 1 if it does not. Works with TLS, and needs no token."""
    from countless.probe import local_url, probe, probe_local
    from countless.server.settings import load_settings

    path = "/readyz" if ready else "/livez"
    settings = load_settings({}, file=config)
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
