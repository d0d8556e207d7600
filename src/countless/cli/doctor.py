"""`countless doctor`: check the installation and print a remedy for every problem."""

import os
from pathlib import Path
from typing import Annotated

import typer

from countless.cli.options import Json, Token

EXAMPLE = "Example:  countless doctor --url https://counts.example:2686"


def doctor(
    url: Annotated[
        str | None,
        typer.Option(
            help="Check the connection to this coordinator.", show_default="COUNTLESS_URL, if nothing else is given"
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Check a coordinator to start with the settings in this TOML file.")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Check a coordinator to start with this state directory.", show_default="as for serve"),
    ] = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Check the installation, and say what to do about each problem.

    It checks versions, disk, ports, permissions, clock, TLS and the
    connection. Exits with 1 if something doesn't work. With --url alone, it
    checks the connection only.
    """
    from countless.doctor import run_checks
    from countless.server.settings import load_settings

    here = state_dir is not None or config is not None
    if url is None and not here:
        url = os.environ.get("COUNTLESS_URL") or None
    settings = load_settings({"state_dir": state_dir and str(state_dir)}, file=config) if here or url is None else None
    findings = list(run_checks(settings, url, token))
    if json:
        from json import dumps

        print(dumps([finding._asdict() | {"well": finding.ok} for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = "NOT" if not finding.ok else "WARN" if finding.remedy else "ok"
            print(f"{mark:5}{finding.what:13} {finding.found}")
            if finding.remedy:
                print(f"{'':18} -> {finding.remedy}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
