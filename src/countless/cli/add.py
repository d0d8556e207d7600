"""`countless add`: count something from a shell."""

from typing import Annotated

import typer

from countless.cli.coordinator import wait_for_start
from countless.cli.options import DEFAULT_URL, Token, Url
from countless.errors import InvalidParameter

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

    if n < 1:
        raise InvalidParameter("n", n, "an integer of at least 1: counts only grow")
    client = connect(url, token)
    counter = client.counter(name)
    problem = wait_for_start(url, timeout)
    if problem is None:
        counter.add(n)
        problem = None if client.close(timeout) else client.last_error or "no answer in time"
    if problem is not None:
        typer.echo(f"countless: not delivered: {problem}", err=True)
        raise typer.Exit(1)
