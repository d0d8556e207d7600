"""`countless lab audit`: search for violations of partial differential privacy in `partial_dp`.

Exit code 0: nothing found; 1: the mechanism is rejected; 2: invalid input.
"""

import json
import sys
from math import isfinite
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from countless.cli.options import Json
from countless.cli.progress import progress
from countless.core.parameters import require_integer
from countless.errors import InvalidParameter
from countless.planning.partial_dp.planner import PartialDPPlan, plan_partial_dp
from countless.randomness import SeededRandom
from countless_lab.audit.defects import NARROW
from countless_lab.audit.finding import AuditFinding
from countless_lab.audit.run import AuditConfig, audit_mechanism, measure_power, to_json
from countless_lab.cli.needs import require_packages
from countless_lab.confidence import lower_limit

PIPE_COLUMNS = 140  # width of the output in a pipe
EXAMPLE = "Example:  countless lab audit --sites 1000 --alpha 0.01 --mechanism one-level-too-few"


def audit(
    sites: Annotated[int, typer.Option(help="Audit a plan for this many sites.")] = 1000,
    alpha: Annotated[float, typer.Option(help="Audit a plan with this relative error.")] = 0.01,
    eta: Annotated[float, typer.Option(help="Accept this probability that one round fails.")] = 1e-4,
    calibration: Annotated[
        str, typer.Option(help="Calibrate the noise as in the paper, or as proven: paper, proven.")
    ] = "proven",
    mechanism: Annotated[str, typer.Option(help="Audit this mechanism; an unknown name lists them all.")] = "right",
    events: Annotated[int, typer.Option(help="Enumerate this many events in the exhaustive audit, 1 to 7.")] = 5,
    tapes: Annotated[int, typer.Option(help="Enumerate the noise of this many transcripts a scenario.")] = 2,
    transcripts: Annotated[int, typer.Option(help="Draw this many random rounds at the size of the plan.")] = 8,
    plays: Annotated[int, typer.Option(help="Play this many rounds for each database and scenario.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Bound the loss in played rounds with this confidence.")] = 0.999,
    power: Annotated[int, typer.Option(help="Runs to measure power.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed all random numbers; the same seed repeats them.")] = 1,
    as_json: Json = False,
) -> None:
    """Search for violations of the privacy that partial_dp claims.

    It can reject a mechanism, but proves nothing. Exits with 1 if it rejects.
    The default takes about a minute.
    """
    require_packages("scipy", "numpy")
    require_integer("power", power, 0)
    plan = _noisy_plan(sites, alpha, eta, calibration)
    config = AuditConfig(events, tapes, transcripts, plays, confidence)
    rng = SeededRandom(seed)
    with progress("auditing") as bar:
        findings = audit_mechanism(mechanism, plan.shape, plan.epsilon, sites, rng, config, bar)
    with progress("measuring the power"):
        seen = measure_power(NARROW, plan.shape, plan.epsilon, sites, power, rng, config)
    if as_json:
        measured = {"defect": NARROW, "rejected": seen, "runs": power}
        print(json.dumps({"seed": seed, **to_json(findings), "power": measured}, indent=2))
    else:
        _print(Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS), findings)
        if power:
            least = f"a power of at least {lower_limit(seen, power, 0.95):.0%}, with confidence 95 %"
            print(f"Measured: {NARROW} was rejected in {seen} of {power} runs of these audits: {least}.")
    if any(finding.violated for finding in findings):
        raise typer.Exit(1)


def _noisy_plan(sites: int, alpha: float, eta: float, calibration: str) -> PartialDPPlan:
    plan = plan_partial_dp(sites, alpha, eta, calibration)
    if not plan.noisy:
        raise InvalidParameter(
            "sites",
            sites,
            "larger, or the calibration `paper`: the cheapest proven plan for so few sites has no noise, "
            "claims no privacy and needs none",
        )
    return plan


def _print(console: Console, findings: tuple[AuditFinding, ...]) -> None:
    table = Table("audit", "on", "claim", "worst seen", "tried", "verdict", title="partial_dp under audit")
    for finding in findings:
        worst = f"{finding.worst:.4f}" if isfinite(finding.worst) else "unbounded"
        claim = f"{finding.claimed:.4f}"
        if finding.claimed_delta:
            claim, worst = f"{claim}, delta {finding.claimed_delta:.4g}", f"{worst}, delta {finding.delta_seen:.4g}"
        tried = f"{finding.tried:,} {finding.unit}"
        table.add_row(finding.audit, finding.shape, claim, worst, tried, finding.verdict)
    console.print(table)
    for finding in findings:
        console.print(f"{finding.audit}, {finding.shape}: {finding.power}.", highlight=False)
        if finding.violated:
            console.print(f"  seen: {finding.witness}", highlight=False, markup=False)
    console.print("This is no proof. The proof is in design/proofs/partial-dp.md.", highlight=False)
