"""Options that the verbs of the service share: where the coordinator is, and with which token to ask it."""

from typing import Annotated

import typer

from countless.client.api import ApiClient

DEFAULT_URL = "http://127.0.0.1:2686"

Url = Annotated[str, typer.Option("--url", envvar="COUNTLESS_URL", help="Where the coordinator is.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="COUNTLESS_TOKEN", show_envvar=True, help="A bearer token, if the coordinator asks."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def reader(url: str, token: str | None) -> ApiClient:
    """Somebody to ask."""
    return ApiClient(url, token)


def describe(answer: dict[str, float | str]) -> str:
    """An answer in one line."""
    estimate, lower, upper = (float(answer[name]) for name in ("estimate", "lower", "upper"))
    return f"{answer['counter']}: {estimate:,.0f} (from {lower:,.0f} to {upper:,.0f}; {answer['state']})"
