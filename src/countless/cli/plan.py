"""`countless plan`: which scheme a fleet should use, what it costs, and why; or what a budget costs."""

import dataclasses
import json
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from countless.cli.numbers import events_per_second, number_of_events, number_of_units, share
from countless.cli.options import Json, refuse_unused
from countless.core.budget.amounts import require_amount, require_slack
from countless.errors import InvalidParameter
from countless.planning.baselines import FLUSH_PERIODS_S
from countless.planning.budget import least_messages, most_messages
from countless.planning.deterministic import DeterministicPlan
from countless.planning.failure_budget import round_eta
from countless.planning.plan import MAX_SITES, Plan, RoundPlan, check_request
from countless.planning.traffic import Group, flush_messages, messages_until
from countless.planning.traffic import zipf as zipf_shares
from countless.schemes.compare import DAY, Candidate, compare, crossovers, eligible, messages_on_day

EXAMPLE = "Example:  countless plan --sites 1000 --alpha 0.01 --rate 10000/s"
MAX_ZIPF = 5
TYPICAL_ROUND = 10  # round r may fail with probability delta/(r (r+1)); this round is priced

ASSUMES = {  # the strongest adversary that a scheme is proved against
    "sees-everything": "sees everything",
    "adaptive": "sees the answers",
    "oblivious": "does not react",
}


def plan(
    sites: Annotated[int, typer.Option(help="Plan for this many sites.")] = 1000,
    alpha: Annotated[float, typer.Option(help="Allow this relative error, between 0 and 1/2.")] = 0.01,
    delta: Annotated[float, typer.Option(help="Accept this probability that the bound ever fails.")] = 0.05,
    eta: Annotated[
        float | None, typer.Option(help="Accept this probability that one round fails, instead of --delta.")
    ] = None,
    adversary: Annotated[
        str, typer.Option(help="Assume that traffic is adaptive, oblivious or sees-everything.")
    ] = "adaptive",
    rate: Annotated[
        str | None, typer.Option(help="Add messages a day at this rate of all events, such as 10000/s.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Instead: price a budget with this limit, such as 50M."),
    ] = None,
    slack: Annotated[str, typer.Option(help="With --budget: leave at most this share unused at a refusal.")] = "1%",
    zipf: Annotated[
        float | None, typer.Option(help="Price uneven traffic: a share of 1/i^ZIPF for the i-th site.")
    ] = None,
    events: Annotated[str | None, typer.Option(help="With --zipf: price this many events, such as 1e9.")] = None,
    as_json: Json = False,
    *,
    context: typer.Context,
) -> None:
    """Compare schemes for a fleet, or price a budget, before deploying it."""
    if budget is not None:
        others = ("alpha", "delta", "eta", "adversary", "rate", "zipf", "events")
        refuse_unused(context, "only without --budget", *others)
        return _plan_budget(number_of_units("budget", budget), sites, share("slack", slack), as_json)
    refuse_unused(context, "only with --budget", "slack")
    per_second = None if rate is None else events_per_second(rate)
    eta_of_round = round_eta(delta, TYPICAL_ROUND)
    if eta is not None:
        eta_of_round = eta
    if zipf is not None:
        traffic = _zipf_traffic(zipf, sites, events, per_second)
        lines = compare(traffic.sites, alpha, eta_of_round, adversary, traffic.groups)
        return print_traffic(traffic, lines, alpha, adversary, as_json)
    refuse_unused(context, "only with --zipf", "events")
    per_day = None if per_second is None else DAY * per_second
    lines = compare(sites, alpha, eta_of_round, adversary)
    if as_json:
        return print(json.dumps(_as_json(lines, per_day), indent=2))
    return _print(Console(), lines, per_day, alpha, eta_of_round, adversary)


class Fleet(NamedTuple):
    name: str
    sites: int
    groups: list[Group]
    events: int
    flushes: dict[str, int]  # messages, by interval


def _zipf_traffic(exponent: float, sites: int, events: str | None, rate: float | None) -> Fleet:
    if not 0 <= exponent <= MAX_ZIPF:
        raise InvalidParameter("zipf", exponent, f"a number from 0 to {MAX_ZIPF}")
    check_request(sites, 0.01, 0.5)
    number, groups, per_second = number_of_events(events or "1e9"), zipf_shares(sites, exponent), rate or 10_000.0
    flushes = {f"{s}s": round(flush_messages(groups, number, per_second, s)) for s in FLUSH_PERIODS_S}
    name = f"Zipf {exponent:g}, {per_second:,g} events/s{'' if rate else ' assumed'}"
    return Fleet(name, sites, groups, number, flushes)


def print_traffic(traffic: Fleet, lines: dict[str, Candidate], alpha: float, adversary: str, as_json: bool) -> None:
    plans = {name: cast(DeterministicPlan | RoundPlan, line.plan) for name, line in lines.items()}
    until = {name: messages_until(plan, traffic.groups, traffic.events) for name, plan in plans.items()}
    if as_json:
        schemes = {
            name: {
                "messages_per_efold": line.messages_per_efold,
                "balanced": line.plan.messages_per_efold,
                "messages": until[name],
                "safe_against": line.safe_against,
                "eligible": line.eligible,
            }
            for name, line in lines.items()
        }
        figures = {"sites": traffic.sites, "events": traffic.events, "candidates": schemes, "flushes": traffic.flushes}
        return print(json.dumps(figures, indent=2))
    console, table = Console(), Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("scheme", no_wrap=True)
    for name in ("messages\nper e-fold", "if it were\nbalanced", f"for {traffic.events:,}\nevents"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("stands against", no_wrap=True)
    best = min((line for line in lines.values() if line.eligible), key=lambda line: until[line.name])
    for line in sorted(lines.values(), key=lambda line: (not line.eligible, until[line.name])):
        numbers = (line.messages_per_efold, line.plan.messages_per_efold, until[line.name])
        cells = [_marked(line), *(f"{number:,.0f}" for number in numbers), ASSUMES[line.safe_against]]
        table.add_row(*cells, style="bold green" if line is best else None if line.eligible else "dim")
    for interval, messages in traffic.flushes.items():
        table.add_row(f"flush every {interval}", "", "", f"{messages:,}", "")
    title = f"{traffic.sites:,} sites, {traffic.name}, alpha = {alpha:g}, adversary: {adversary}"
    console.print(title, table, sep="\n", highlight=False)
    long_run = eligible(lines)[0]
    console.print(
        f"{best.name} is the cheapest with a proof against this adversary: {until[best.name]:,.0f} messages for these "
        f"events{', and also' if best is long_run else f'; {long_run.name}'} in the long run."
    )
    _explain_marks(console, lines)
    return console.print(
        "Per e-fold: while the total grows by a factor e, in the long run. A flush has no error bound: its answer is "
        "as old as the interval. Dim: not proven, or not safe against this adversary.",
        style="dim",
    )


def _plan_budget(limit: int, sites: int, slack: float, as_json: bool) -> None:
    """The bounds of design/proofs/budgets.md."""
    require_amount("budget", limit)
    require_amount("sites", sites, maximum=MAX_SITES)
    require_slack(slack)
    most, least = most_messages(sites, limit, slack), least_messages(sites, limit, slack)
    if as_json:
        figures = {"most_messages": most, "least_messages": least, "asking_for_each_unit": 2 * limit}
        return print(json.dumps(figures, indent=2))
    print(f"{limit:,} units, {sites:,} sites, slack {slack:g}: at most {most:,.0f} messages in a period.")
    print(f"A server that is asked for each unit: {2 * limit:,}.")
    if least:
        print(f"Every protocol with the same promises needs {least:,.0f} on some traffic.")
    return print("For requests of one unit, without holds. Requests after the first refusal of a site cost none.")


def _as_json(lines: dict[str, Candidate], per_day: float | None) -> dict[str, Any]:
    candidates = {}
    for name, line in lines.items():
        candidates[name] = {
            "messages_per_efold": line.messages_per_efold,
            "ratio": line.ratio,
            "safe_against": line.safe_against,
            "eligible": line.eligible,
            "plan": _plan_as_json(line.plan),
        }
        if per_day is not None:
            candidates[name]["messages_first_day"] = messages_on_day(1, per_day, line.messages_per_efold)
            candidates[name]["messages_day_30"] = messages_on_day(30, per_day, line.messages_per_efold)
    return {
        "choice": eligible(lines)[0].name,
        "reason": _reason(lines),
        "candidates": candidates,
        "deterministic": lines["deterministic"].messages_per_efold,
    }


def _plan_as_json(numbers: Plan) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, Fraction):
            return float(value)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return str(value)
        return value

    result: dict[str, Any] = plain(numbers)
    return result


def _marked(line: Candidate) -> str:
    """The name, with a star if the plan of a scheme that hides behind noise has none."""
    return line.name + "*" * (not getattr(line.plan, "noisy", True))


def _explain_marks(console: Console, lines: dict[str, Candidate]) -> None:
    if any(_marked(line) != line.name for line in lines.values()):
        console.print("* without noise: for so few sites that round is the cheaper one.", highlight=False)


def _reason(lines: dict[str, Candidate]) -> str:
    best, second, *_ = eligible(lines)
    saving = 1 - best.messages_per_efold / second.messages_per_efold
    return (
        f"{best.name} is the cheapest with a proof against this adversary: {best.messages_per_efold:,.0f} messages "
        f"while the total grows by a factor e, {saving:.0%} fewer than {second.name}."
    )


def _print(
    console: Console, lines: dict[str, Candidate], per_day: float | None, alpha: float, eta: float, adversary: str
) -> None:
    sites = next(iter(lines.values())).plan.sites
    title = f"{sites:,} sites, alpha = {alpha:g}, eta = {eta:.2g} a round, adversary: {adversary}"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    numbers = ["messages\nper e-fold", "ratio"] + (["messages\nfirst day", "on day 30"] if per_day is not None else [])
    table.add_column("scheme", no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("stands against", no_wrap=True)
    best = eligible(lines)[0]
    for line in sorted(lines.values(), key=lambda line: not line.eligible):
        cells = [_marked(line), f"{line.messages_per_efold:,.0f}", f"{line.ratio:.3f}"]
        if per_day is not None:
            cells += [f"{messages_on_day(day, per_day, line.messages_per_efold):,.0f}" for day in (1, 30)]
        cells.append(ASSUMES[line.safe_against])
        table.add_row(*cells, style="bold green" if line is best else None if line.eligible else "dim")
    console.print(title, table, sep="\n", highlight=False)
    _explain_marks(console, lines)
    console.print(_reason(lines))
    (_, first), *others = crossovers(alpha, eta, adversary)
    crossings = [f"{name} from about {start:,} sites" for start, name in others]
    console.print(f"At this alpha: {', then '.join([f'{first} for few sites', *crossings])}.")
    console.print("The ratio is to deterministic. Dim: not safe against this adversary.", style="dim")
