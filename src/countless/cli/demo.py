"""`countless demo`: what Countless is for, in half a minute; with `--keep`, a real coordinator with real sites."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example:  countless demo --keep"
PORT = 2690  # in the line to try next, so that it can say where the page will be
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def demo(
    sites: Annotated[int, typer.Option(help="Use this many sites.", min=2, max=10_000)] = 1024,
    alpha: Annotated[float, typer.Option(help="Allow this relative error, between 0 and 1/2.")] = 0.01,
    events: Annotated[
        int, typer.Option(help="Play this many events in each of the first two acts.", min=1000)
    ] = 1_000_000,
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
) -> None:
    """Show what Countless is for, in half a minute.

    Two trackers under ordinary traffic and under a rate limiter, the messages
    of a day, and a shared limit. Exits with 1 if an answer of Countless was
    ever outside its bounds.
    """
    from rich.console import Console

    from countless.core.parameters import require_alpha

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
    from countless.demo.acts import ACTS, DAY_EVENTS, DAY_RATE, DAY_SITES, bills, share_a_limit, track
    from countless.demo.display import KEY, Display, limit_title

    display = Display(console, alpha)
    console.print(f"{sites:,} sites count together; alpha = {100 * alpha:.3g} % is the error allowed at every moment.")
    if console.is_terminal:
        console.print(KEY)
    held = True
    for number, (title, adversary) in enumerate(ACTS.items(), start=1):
        with display.act(number, title):
            for classical, ours in track(adversary, sites, alpha, events, seed):
                display.bands([classical, ours])
        held = held and not ours.broken
    with display.act(3, f"a day of {DAY_SITES:,} sites with {DAY_RATE:,} events a second, and on to a billion events"):
        for bill in bills(seed):
            if bill.events <= DAY_EVENTS:
                day = bill
            display.bill(day, None if bill is day else bill)
    console.print(f"   The error of countless was at most {bill.worst:.2f} x alpha at every moment.")
    display.title(4, limit_title())
    display.admitted(share_a_limit())
    console.print(
        f"\nTraffic that reacts to the answers: the classical tracker is wrong by up to {classical.worst:.1f} x alpha, "
        f"countless by {ours.worst:.2f} x alpha."
    )
    keep = f"--keep --port {PORT}"
    command = f"make demo ARGS='{keep}'" if "MAKELEVEL" in os.environ else f"countless demo {keep}"
    page = f"while it runs, its page is at http://127.0.0.1:{PORT}/"
    console.print(f"Next: {command}    (a real coordinator, which is killed; {page})")
    return held and bill.worst <= 1


def _keep(console: "Console", sites: int, processes: int, alpha: float, port: int, seed: int, pause: float) -> bool:
    from countless.demo.fleet import Fleet
    from countless.demo.keep import ordinary, play

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
