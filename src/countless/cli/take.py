"""`countless take`: spend units of a budget from a shell."""

from logging import NullHandler, getLogger
from typing import Annotated

import typer

from countless.cli.coordinator import wait_for_start
from countless.cli.numbers import number_of_units
from countless.cli.options import DEFAULT_URL, Timeout, Token, Url

EXAMPLE = "Example:  countless take acme/exports 1 && ./export"
EX_TEMPFAIL = 75  # of sysexits.h: try again later


def take(
    name: Annotated[str, typer.Argument(help="The budget.")],
    n: Annotated[str, typer.Argument(help="How many units, such as 1000 or 50M.")] = "1",
    url: Url = DEFAULT_URL,
    token: Token = None,
    timeout: Timeout = 10.0,
) -> None:
    """Spend units of a budget.

    Exits with 0 if they may be used, 1 if they aren't left, and 75 without an
    answer.
    """
    from countless.client.client import connect
    from countless.core.budget.amounts import require_amount
    from countless.core.budget.decision import Reason

    units = number_of_units("n", n)
    require_amount("n", units)
    getLogger("countless").addHandler(NullHandler())  # the program's log repeats what is printed
    client = connect(url, token)
    budget = client.budget(name)
    if problem := wait_for_start(url, timeout):
        typer.echo(f"countless: {units} of {name}: unreachable ({problem})", err=True)
        raise typer.Exit(EX_TEMPFAIL)
    try:
        decision = budget.take(units, wait=timeout)
    finally:
        handed_in = client.close(min(timeout, 5.0))
    if decision and not handed_in:
        typer.echo("countless: spent, but not reported: the coordinator counts the whole grant", err=True)
    if not decision:
        detail = f" ({client.last_error})" if client.last_error else ""
        if decision.retry_after is not None:
            detail += f"; more is available in {decision.retry_after:.0f} s"
        typer.echo(f"countless: {units} of {name}: {decision.reason}{detail}", err=True)
        raise typer.Exit(1 if decision.reason is Reason.EXHAUSTED else EX_TEMPFAIL)
