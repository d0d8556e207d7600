"""Options that several verbs share: the coordinator's URL, a token, JSON, the state directory."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from countless.client.environment import DEFAULT_URL as DEFAULT_URL

Url = Annotated[str, typer.Option("--url", envvar="COUNTLESS_URL", help="URL of the coordinator.")]


def _from_standard_input(token: str | None) -> str | None:
    return sys.stdin.readline().strip() if token == "-" else token  # noqa: S105 - the name of standard input


Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="COUNTLESS_TOKEN",
        show_envvar=True,
        callback=_from_standard_input,
        help="A bearer token; - reads it from standard input. COUNTLESS_TOKEN_FILE names a file instead.",
    ),
]
StateDir = Annotated[
    Path, typer.Option("--state-dir", envvar="COUNTLESS_STATE_DIR", help="The coordinator's state directory.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
