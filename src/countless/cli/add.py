"""`countless add`: count something from a shell."""

from typing import Annotated

import typer

from countless.cli.options import DEFAULT_URL, Token, Url

EXAMPLE = "Example:  countless add requests 5"


def add(
    name: Annotated[str, typer.Argument(help="The counter.")],
    n: Annotated[int, typer.Argument(help="How many events.")] = 1,
    url: Url = DEFAULT_URL,
    token: Token = None,
    timeout: Annotated[float, typer.Option(help="Wait this many seconds for the coordinator.")] = 10.0,
) -> None:
    """Add to a counter, and wait until the coordinator has stored it.

    Exits with 1 if it was not delivered in time.
    """
    from countless.client.client import connect

    client = connect(url, token)
    client.counter(name).add(n)
    if not client.close(timeout):
        typer.echo(f"countless: not delivered: {client.last_error or 'no answer in time'}", err=True)
        raise typer.Exit(1)
