"""Options that several verbs share: the coordinator's URL, a token, JSON."""

from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:2686"

Url = Annotated[str, typer.Option("--url", envvar="COUNTLESS_URL", help="URL of the coordinator.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="COUNTLESS_TOKEN", show_envvar=True, help="A bearer token, if the coordinator requires one."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def describe(answer: dict[str, float | str]) -> str:
    estimate, lower, upper = (float(answer[name]) for name in ("estimate", "lower", "upper"))
    return f"{answer['counter']}: {estimate:,.0f} (from {lower:,.0f} to {upper:,.0f}; {answer['state']})"
