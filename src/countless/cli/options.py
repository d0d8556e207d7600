"""Options that several verbs share: the coordinator's URL, a token, JSON, the state directory."""

from pathlib import Path
from typing import Annotated

import typer

from countless.client.environment import DEFAULT_URL as DEFAULT_URL

Url = Annotated[str, typer.Option("--url", envvar="COUNTLESS_URL", help="URL of the coordinator.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="COUNTLESS_TOKEN", show_envvar=True, help="A bearer token, if the coordinator requires one."
    ),
]
StateDir = Annotated[
    Path, typer.Option("--state-dir", envvar="COUNTLESS_STATE_DIR", help="The coordinator's state directory.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
