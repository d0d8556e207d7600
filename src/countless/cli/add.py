"""`countless add`: count something from a shell."""

import re
from logging import NullHandler, getLogger
from typing import Annotated, Any, cast

import typer

from countless.cli.coordinator import wait_for_start
from countless.cli.options import DEFAULT_URL, Anchor, Per, Timeout, Token, Tz, Url
from countless.errors import CounterRefused, InvalidParameter

EXAMPLE = "Example:  countless add requests 5"


def add(
    name: Annotated[str, typer.Argument(help="The counter.")],
    n: Annotated[int, typer.Argument(help="How many events.")] = 1,
    per: Per = None,
    tz: Tz = None,
    anchor: Anchor = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    timeout: Timeout = 10.0,
) -> None:
    """Add to a counter, and wait until the coordinator has stored it.

    A counter with windows needs its --per. Exits with 1 if it was not
    delivered in time.
    """
    from countless.client.client import connect

    if n < 1:
        raise InvalidParameter("n", n, "an integer of at least 1: counts only grow")
    getLogger("countless").addHandler(NullHandler())  # the program's log repeats the line below
    client = connect(url, token)
    counter = client.counter(name, per=cast(Any, per), tz=tz or "UTC", anchor=anchor)
    problem = wait_for_start(url, timeout)
    if problem is None:
        counter.add(n)
        try:
            problem = None if client.close(timeout) else client.last_error or "no answer in time"
        except CounterRefused as refused:
            reason = next(iter(refused.reasons.values()))
            raise typer.TyperException(re.sub(r"per='(\w+)'", r"--per \1", reason)) from None
    if problem is not None:
        typer.echo(f"countless: not delivered: {problem}", err=True)
        raise typer.Exit(1)
