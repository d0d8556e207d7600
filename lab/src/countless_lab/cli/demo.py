"""`countless demo`: what Countless is for, in half a minute; with `--keep`, a real coordinator with real sites."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from countless.cli.options import refuse_unused

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example:  countless demo --keep"
PORT = 2690  # in the line to try next, so that it can say where the page will be
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def demo(
    sites: Annotated[int, typer.Option(help="Use this many sites.", min=2, max=10_000)] = 1024,
    alpha: Annotated[float, typer.Option(help="Allow this relative error, between 0 and 1/2.")] = 0.01,
    events: Annotated[int, typer.Option(help="Play this many events against each tracker.", min=1000)] = 1_000_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Instead: run a real coordinator with 200 sites, until Ctrl-C.")
    ] = False,
    processes: Annotated[
        int, typer.Option(help="With --keep: spread the sites over this many processes.", min=1, max=100)
    ] = 8,
    port: Annotated[int, typer.Option(help="With --keep: use this port; 0 lets the system choose.")] = 0,
    pause: Annotated[
        float, typer.Option(help="With --keep: wait this many seconds before and after the kill.", min=0)
    ] = 5.0,
    seed: Annotated[int, typer.Option(help="Seed traffic and trackers; a real coordinator has no seed.")] = 1,
    *,
    context: typer.Context,
) -> None:
    """Show what Countless is for, in half a minute.

    A limit that processes share while one is killed, totals under traffic
    that reacts to them, and the messages of a day. Exits with 1 if Countless
    admitted too much, or if an answer of it was ever outside its bounds.
    """
    from rich.console import Console

    from countless.core.parameters import require_alpha

    refuse_unused(context, "only with --keep", *([] if keep else ["processes", "port", "pause"]))
    refuse_unused(context, "only without --keep", *(["events"] if keep else []))
    require_alpha(alpha)
    console = Console(highlight=False)
    console.soft_wrap = not console.is_terminal  # a pipe gets whole lines
    with _stopped_by_signals():
        held = (
            _keep(console, min(sites, 200), processes, alpha, port, seed, pause)
            if keep
            else _play(console, sites, alpha, events, seed)
        )
    if not held:
        raise typer.Exit(1)


def _play(console: "Console", sites: int, alpha: float, events: int, seed: int) -> bool:
    from countless_lab.demo.acts import DAY_EVENTS, DAY_RATE, DAY_SITES, FEEDBACK, bills, track
    from countless_lab.demo.display import KEY, Display
    from countless_lab.demo.limit import GATEWAYS, LIMIT, share_a_limit
    from countless_lab.demo.processes import Processes

    display = Display(console, alpha)
    display.title(1, f"{GATEWAYS} gateways share a limit of {LIMIT:,} requests, and one is killed and restarted")
    console.print(
        "   Each is a process, and the kill is a kill -9. sync adds up a total every\n"
        "   100 ms, as with Redis; countless shares a budget."
    )
    with display.act(), Processes() as processes:
        for shared in share_a_limit(processes):
            display.limits(shared)
        display.limits(shared, final=True)
    synced, exact = shared
    display.title(2, "A rate limiter reads the total: there is no attacker")
    console.print(f"   {sites:,} sites count together; alpha = {100 * alpha:.3g} % is the error that is allowed.")
    if console.is_terminal:
        console.print(KEY)
    with display.act():
        for classical, ours in track(FEEDBACK, sites, alpha, events, seed):
            display.bands([classical, ours])
    display.title(3, f"A day of {DAY_SITES:,} sites with {DAY_RATE:,} events a second, and on to a billion events")
    with display.act():
        for bill in bills(seed):
            if bill.events <= DAY_EVENTS:
                day = bill
            display.bill(day, None if bill is day else bill)
    console.print(f"   The error of countless was at most {bill.worst:.2f} x alpha at every moment.")
    console.print(
        f"\nA limit of {LIMIT:,} and a kill: sync admits {sum(synced.admitted):,}, countless {sum(exact.admitted):,}.\n"
        f"Traffic that reacts to the answers: the classical tracker is wrong by up to {classical.worst:.1f} x alpha, "
        f"countless by {ours.worst:.2f} x alpha."
    )
    keep = f"--keep --port {PORT}"
    command = f"make demo ARGS='{keep}'" if "MAKELEVEL" in os.environ else f"countless demo {keep}"
    page = f"while it runs, its page is at http://127.0.0.1:{PORT}/"
    console.print(f"Next: {command}    (a real coordinator, which is killed; {page})")
    return exact.over <= 0 and not ours.broken and bill.worst <= 1


def _keep(console: "Console", sites: int, processes: int, alpha: float, port: int, seed: int, pause: float) -> bool:
    from countless_lab.demo.fleet import Fleet
    from countless_lab.demo.keep import ordinary, play

    console.print(f"Starting a coordinator and {sites:,} sites in {processes} processes on this machine ...")
    held = True
    with Fleet(sites, processes, alpha, port) as fleet:
        console.print(f"The page: {fleet.url}/", f"The answer: curl {fleet.url}/api/v1/counters/requests\n", sep="\n")
        for step in play(fleet, seed, pause):
            held = held and step.held
            console.print(step.what)
            if step.answer is not None:
                estimate, lower, upper = (f"{number:,.0f}" for number in step.answer)
                console.print(f"   {estimate} (from {lower} to {upper}); the true total is {step.total:,}")
        console.print(f"\nStill counting at {fleet.url}/ - press Ctrl-C to stop.")
        for burst in ordinary(fleet, seed):
            fleet.add(burst)
    return held


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, frame: object) -> None:
    """Leave the `with` blocks: the cursor is shown, and the processes of the demo are stopped. A second signal must not
    end that.
    """
    for each in STOPPING:
        signal.signal(each, lambda *_: None)
    raise SystemExit(128 + number)
