"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from countless.client.transport.endpoint import DEFAULT_URL as DEFAULT_URL

Url = Annotated[str, typer.Option("--url", envvar="COUNTLESS_URL", help="Ask the coordinator at this address.")]


def _from_standard_input(token: str | None) -> str | None:
    return sys.stdin.readline().strip() if token == "-" else token  # noqa: S105 - the name of standard input


Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="COUNTLESS_TOKEN",
        show_envvar=True,
        callback=_from_standard_input,
        help="Send this bearer token; - reads it from standard input.",
    ),
]
Timeout = Annotated[float, typer.Option(min=0, help="Wait this many seconds for the coordinator.")]
Per = Annotated[str | None, typer.Option(help="Count each minute, hour, day or month on its own as well.")]
Tz = Annotated[str | None, typer.Option(help="With --per: use this time zone, UTC by default.")]
Anchor = Annotated[int | None, typer.Option(help="With --per: begin at this second, minute, hour or day of month.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StateDir = Annotated[
    Path, typer.Option("--state-dir", envvar="COUNTLESS_STATE_DIR", help="Use this state directory of a coordinator.")
]
Window = Annotated[str | None, typer.Option(help="Read one window: now, last-hour, today, yesterday, 2026-11-16 ...")]
Rolling = Annotated[str | None, typer.Option(help="Look back this far: 30s, 15m, 1h, 7d ...")]


def require_at_most_one(**options: str | None) -> dict[str, str]:
    """The one that was given, if any."""
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) > 1:
        raise typer.TyperException(f"give --{' or --'.join(given)}, and not both")
    return given


def refuse_unused(context: typer.Context, used: str, *names: str) -> None:
    """Fail if one of these options was given, although it has no effect in this call: it is used `used`."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.TyperException(f"--{name} is used {used}")
