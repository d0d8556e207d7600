"""`countless demo`: a real coordinator, real sites, ordinary traffic, and then traffic that reacts to the answers."""

import signal
from time import monotonic
from typing import Annotated

import typer

EXAMPLE = "Example:  countless demo --keep"


def demo(
    sites: Annotated[int, typer.Option(help="How many sites count.", min=2, max=900)] = 200,
    processes: Annotated[int, typer.Option(help="Number of processes.", min=1, max=100)] = 8,
    alpha: Annotated[float, typer.Option(help="Relative error allowed, between 0 and 1/2.")] = 0.05,
    events: Annotated[
        int, typer.Option(help="Ordinary events before the attack, approximately.", min=1000)
    ] = 2_000_000,
    port: Annotated[int, typer.Option(help="Port of the coordinator; 0 lets the system choose.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Continue with ordinary traffic until Ctrl-C.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of traffic and classical tracker; the service is not seeded.")] = 7,
) -> None:
    """Start a coordinator and a fleet on this machine, and attack it and a classical tracker side by side.

    Exit 1 if the total of the service was ever outside its bounds.
    """
    from rich.console import Console

    from countless.demo.cost_table import cost_table
    from countless.demo.display import Display
    from countless.demo.fleet import Fleet
    from countless.demo.scenario import ordinary, play

    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)
    console = Console()
    console.print(f"Starting a coordinator and {sites:,} sites in {processes} processes on this machine ...")
    with Fleet(sites, processes, alpha, port) as fleet:
        console.print(f"The page: {fleet.url}/", f"The answer: curl {fleet.url}/api/v1/counters/requests\n", sep="\n")
        display, began, held = Display(console, alpha, fleet.url), monotonic(), True
        with display.showing():
            for frame in play(fleet, events, seed):
                double = fleet.operator_view()["messages_to_double"]
                rows = cost_table(sites, frame.ours.total, monotonic() - began, frame.ours.messages, double)
                display.show(frame, rows)
                held = held and not frame.ours.broken
        display.sum_up(frame, rows)
        if keep:
            console.print(f"\nStill counting at {fleet.url}/ - press Ctrl-C to stop.")
            for burst in ordinary(fleet, seed):
                fleet.add(burst)
    if not held:
        raise typer.Exit(1)


def _exit(number: int, frame: object) -> None:
    """Leave the `with` blocks, so that the processes of the demo are stopped too."""
    raise SystemExit(128 + number)
