"""`countless demo`: a real coordinator, real sites, ordinary traffic, and then traffic that reacts to the answers."""

from time import monotonic
from typing import Annotated

import typer

EXAMPLE = "Example:  countless demo --keep"


def demo(
    sites: Annotated[int, typer.Option(help="How many sites count.", min=2, max=900)] = 200,
    processes: Annotated[int, typer.Option(help="In how many processes.", min=1, max=100)] = 8,
    alpha: Annotated[float, typer.Option(help="Relative error allowed, between 0 and 1/2.")] = 0.05,
    events: Annotated[int, typer.Option(help="Ordinary events before the attack, about.", min=1000)] = 2_000_000,
    port: Annotated[int, typer.Option(help="Port of the coordinator; 0 lets the system choose.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Go on with ordinary traffic until Ctrl-C.")] = False,
    seed: Annotated[int, typer.Option(help="Of traffic and classical tracker; ours has the system's dice.")] = 7,
) -> None:
    """Start a coordinator and a fleet on this machine, and lead the classical tracker out of its bound beside it.

    Exit 1 if the total ever left its bounds.
    """
    from rich.console import Console

    from countless.demo.cost_table import cost_table
    from countless.demo.display import Display
    from countless.demo.fleet import Fleet
    from countless.demo.scenario import ordinary, play

    console = Console()
    console.print(f"Starting a coordinator and {sites:,} sites in {processes} processes on this machine ...")
    with Fleet(sites, processes, alpha, port) as fleet:
        console.print(f"The page: {fleet.url}/", f"The answer: curl {fleet.url}/api/v1/counters/requests\n", sep="\n")
        display, began, held = Display(console, alpha, fleet.url), monotonic(), True
        with display.showing():
            for frame in play(fleet, events, seed):
                double = fleet.operator_view()["messages_to_double"]
                lines = cost_table(sites, frame.ours.total, monotonic() - began, frame.ours.messages, double)
                display.show(frame, lines)
                held = held and not frame.ours.broken
        display.sum_up(frame, lines)
        if keep:
            console.print(f"\nStill counting at {fleet.url}/ - Ctrl-C ends it.")
            for burst in ordinary(fleet, seed):
                fleet.add(burst)
    if not held:
        raise typer.Exit(1)
