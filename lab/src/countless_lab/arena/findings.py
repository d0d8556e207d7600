"""The finding over each figure and table of `countless lab report`, in a sentence from the numbers it shows."""

from countless_lab.arena import report_data
from countless_lab.arena.report_data import ReportData
from countless_lab.simulation.world import NO_SECRETS


def attack(data: ReportData) -> str:
    worst = (f"{max(map(abs, run.errors)):.2f} times for {run.scheme}" for run in data.attacked)
    return f"The largest error, measured by the allowed one: {', '.join(worst)}."


def tournament(data: ReportData) -> str:
    shown = [match for match in data.tournament if match["scheme"] not in left_out(data)]
    violated = sorted({match["scheme"] for match in shown if violates(match)})
    broken = {match["scheme"] for match in shown if match["failures"] and not match["claimed"]}
    outcome = f"The guarantee of {', '.join(violated)} is refuted." if violated else "No guarantee is refuted."
    if not broken:
        return outcome
    return f"{outcome} Broken where no guarantee covers the adversary: {', '.join(sorted(broken))}."


def violates(match: dict[str, object]) -> bool:
    return bool(match["claimed"]) and match["failure_rate_lower"] > match["delta"]  # type: ignore[operator]


def left_out(data: ReportData) -> list[str]:
    """The schemes with secrets that needed none in any game: their errors would say nothing."""
    used = {match["scheme"] for match in data.tournament if match["randomised"] or match["scheme"] in NO_SECRETS}
    return sorted({match["scheme"] for match in data.tournament} - used)


def by_sites(data: ReportData) -> str:
    auto, paper, deterministic = (data.by_sites[name][-1] for name in ("auto", "partial_dp_paper", "deterministic"))
    return (
        f"With {report_data.SITES[-1]:,} sites auto sends {auto / deterministic:.2g} times as many messages as "
        f"deterministic, and the paper's constants {paper / deterministic:.2g} times as many."
    )


def by_alpha(data: ReportData) -> str:
    smaller = report_data.ALPHAS[-1] / report_data.ALPHAS[0]
    dearer = data.by_alpha["auto"][0] / data.by_alpha["auto"][-1]
    return f"An error that is {smaller:.0f} times smaller costs auto {dearer:.0f} times the messages."


def by_total(data: ReportData) -> str:
    return f"{data.totals[-1]:,.0f} events cost auto {data.by_total['auto'][-1]:,.0f} messages, by its plans."


def crossover(data: ReportData) -> str:
    ratios = [ratio for row in data.ratio for ratio in row]
    return f"The cheapest plan sends {min(ratios):.2f} to {max(ratios):.2f} times the messages of deterministic."


def frameworks(data: ReportData) -> str:
    messages = {row.name: row.messages for row in data.frameworks}
    copies = [row.messages / messages["deterministic"] for row in data.frameworks if row.flips is not None]
    return f"The three frameworks send {min(copies):,.0f} to {max(copies):,.0f} times the messages of deterministic."
