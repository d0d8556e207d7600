"""`countless lab simulate`: the messages and the worst error of a fleet, without deploying anything."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from countless.cli.numbers import events_per_second, number_of_events
from countless.cli.options import Json, refuse_unused
from countless.cli.plan import TYPICAL_ROUND, Fleet, print_traffic
from countless.cli.progress import progress
from countless.errors import InvalidParameter
from countless.planning.baselines import FLUSH_PERIODS_S
from countless.planning.failure_budget import round_eta
from countless.planning.traffic import groups_of
from countless.schemes.compare import compare
from countless_lab.simulation.baselines import flush_messages, flush_messages_of_trace
from countless_lab.simulation.registry import STREAMS, stream_named
from countless_lab.simulation.run import Outcome, fast_run
from countless_lab.simulation.stream import Stream
from countless_lab.simulation.traces import Trace, read_trace
from countless_lab.simulation.world import MARK, NO_SECRETS

EXAMPLE = "Example:  countless lab simulate --sites 1000 --alpha 0.01 --events 1e9 --stream zipf --rate 10000/s"
DEFAULT_EVENTS, DEFAULT_RATE = "1e9", "10000/s"


def simulate(
    scheme: Annotated[str, typer.Option(help="Run this scheme; auto picks the cheapest with a proof.")] = "auto",
    sites: Annotated[int, typer.Option(help="Use this many sites.")] = 1000,
    alpha: Annotated[float, typer.Option(help="Allow this relative error, between 0 and 1/2.")] = 0.01,
    delta: Annotated[float, typer.Option(help="Accept this probability that the bound ever fails.")] = 0.05,
    events: Annotated[str | None, typer.Option(help="Count this many events, such as 1e9.")] = None,
    stream: Annotated[str, typer.Option(help=f"Stream: {', '.join(STREAMS)}.")] = "uniform",
    trace: Annotated[
        Path | None, typer.Option(help="Replay this traffic instead, a CSV or CSV.gz with t,site.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Let events of all sites arrive at this rate, such as 10000/s.")
    ] = None,
    adversary: Annotated[
        str, typer.Option(help="With auto: assume adaptive, oblivious or sees-everything traffic.")
    ] = "adaptive",
    seed: Annotated[int, typer.Option(help="Seed all random numbers; the same seed repeats them.")] = 1,
    prices: Annotated[bool, typer.Option("--prices", help="With --trace: price every scheme, and run none.")] = False,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write simulate.json and course.csv into this folder, too.")] = None,
    *,
    context: typer.Context,
) -> None:
    """Run events through real sites and a coordinator, and count messages.

    A billion events take some seconds; with a scheme that sends many
    messages, such as partial_dp_paper, about half a minute.
    """
    if prices:
        if trace is None:
            raise typer.TyperException("--prices needs --trace; for other traffic there is: countless plan")
        refuse_unused(context, "only without --prices", "scheme", "events", "rate", "seed", "out")
        return _print_prices(trace, alpha, delta, adversary, as_json)
    per_second = events_per_second(rate or DEFAULT_RATE) if rate is not None or trace is None else None
    source = _source(stream, trace, sites, events, seed)
    total = _events(events, source)
    if out is not None:
        _make(out)  # before the long run
    begin = time.perf_counter()
    with progress("simulating") as bar:
        outcome = fast_run(
            scheme,
            source,
            total,
            alpha=alpha,
            delta=delta,
            seed=seed,
            adversary=adversary,
            progress=bar,
            count_bytes=True,
        )
    seconds = time.perf_counter() - begin
    result: dict[str, Any] = {"scheme": scheme, "stream": trace.name if trace else stream, "sites": source.sites}
    result |= {"alpha": alpha, "delta": delta, "seed": seed, **_measured(outcome), "seconds": round(seconds, 3)}
    result["alternatives"] = _alternatives(source, total, per_second)
    if out is not None:
        _write(out, result, outcome)
    if as_json:
        return print(json.dumps(result, indent=2))
    return _print(Console(), result, per_second)


def _print_prices(trace: Path, alpha: float, delta: float, adversary: str, as_json: bool) -> None:
    """As `countless plan` prints them for traffic whose shares it knows."""
    source = read_trace(trace)
    groups = groups_of(source.count(site, source.length) for site in range(source.sites))
    flushes = {f"{s}s": flush_messages_of_trace(source, source.length, s) for s in FLUSH_PERIODS_S}
    traffic = Fleet(trace.name, source.sites, groups, source.length, flushes)
    lines = compare(source.sites, alpha, round_eta(delta, TYPICAL_ROUND), adversary, groups)
    print_traffic(traffic, lines, alpha, adversary, as_json)


def _source(name: str, trace: Path | None, sites: int, events: str | None, seed: int) -> Stream:
    if trace is not None:
        return read_trace(trace)
    return stream_named(name.replace("-", "_"), sites, number_of_events(events or DEFAULT_EVENTS), seed)


def _events(events: str | None, source: Stream) -> int:
    if not isinstance(source, Trace):
        return number_of_events(events or DEFAULT_EVENTS)
    number = source.length if events is None else number_of_events(events)
    if number > source.length:
        raise InvalidParameter("events", events, f"at most {source.length:,}, the length of the trace")
    return number


def _measured(outcome: Outcome) -> dict[str, Any]:
    return {
        "events": outcome.events,
        "messages": outcome.messages.total,
        "messages_up": outcome.messages.up,
        "messages_down": outcome.messages.down,
        "bytes": outcome.messages.bytes,
        "rounds": outcome.rounds,
        "estimate": round(outcome.estimate),
        "worst_error_over_alpha": outcome.worst_error_over_alpha,
        "inside": outcome.inside,
        "randomised": outcome.randomised,
    }


def _alternatives(source: Stream, events: int, per_second: float | None) -> dict[str, int]:
    """Messages with one for each event, and with flushes; at a flush only sites that counted something send."""
    costs = {"per_event": events}
    for seconds in FLUSH_PERIODS_S:
        if per_second is not None:
            costs[f"flush_{seconds}s"] = flush_messages(source, events, per_second * seconds)
        elif isinstance(source, Trace):
            costs[f"flush_{seconds}s"] = flush_messages_of_trace(source, events, seconds)
    return costs


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter("out", str(out), f"a folder that can be written ({error})") from error


def _write(out: Path, result: dict[str, Any], outcome: Outcome) -> None:
    (out / "simulate.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    lines = [",".join(map(str, asdict(point).values())) for point in outcome.course]
    header = "events,estimate,messages,round,scheme"
    (out / "course.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def _print(console: Console, result: dict[str, Any], per_second: float | None) -> None:
    marked = not result["randomised"] and result["scheme"] not in NO_SECRETS
    title = (
        f"{result['scheme']}{'*' * marked}, {result['sites']:,} sites, {result['stream']}, alpha = {result['alpha']:g}"
    )
    table = Table("", "", title=title, show_header=False)
    table.columns[1].justify = "right"
    table.add_row("events", f"{result['events']:,}")
    messages = f"{result['messages']:,} ({result['messages_up']:,} up, {result['messages_down']:,} down)"
    table.add_row("messages", messages, style="bold")
    table.add_row("bytes", f"{result['bytes']:,}")
    table.add_row("rounds", f"{result['rounds']:,}")
    verdict = "held" if result["inside"] else "broken"
    table.add_row("worst error / alpha", f"{result['worst_error_over_alpha']:.3f} ({verdict})")
    table.add_row("seconds", f"{result['seconds']:.1f}")
    table.add_section()
    for name, cost in result["alternatives"].items():
        factor = cost / max(1, result["messages"])
        table.add_row(f"messages, {name.replace('_', ' ')}", f"{cost:,} ({factor:,.1f} x)")
    console.print(table)
    if marked:
        console.print(f"{MARK} Take more events or sites.", highlight=False)
    clock = "the trace's own clock" if per_second is None else f"{per_second:,g} events/s"
    console.print(f"Flushes at {clock}; at a flush only sites that counted something send a message.")
