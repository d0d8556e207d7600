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
            help="Check the connection to this coordinator; without --state-dir and --config, nothing else. "
            "[default: COUNTLESS_URL, without these]"
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the settings of a coordinator to start.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="The coordinator's state directory. [default: as countless serve has it]")
    ] = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Check versions, disk, ports, permissions, clock, TLS and connectivity; exit 1 if something does not work."""
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
