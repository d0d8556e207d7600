"""The tournament, and the attacks on the oblivious schemes with and without memory, as on the page of the arena."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from countless_lab.arena.adversaries.autoscaler import Autoscaler
from countless_lab.arena.adversaries.stop_after_jump import StopAfterJump
from countless_lab.arena.match import Match, Setting, run
from countless_lab.arena.tournament import ADVERSARY_NAMES, SCHEME_NAMES, settings, unrandomised
from tools.tables import Table

# Contestants and opponents of the shorter table, for docs/paper/attacks.md.
SHORT_SCHEMES = ("hyz", "lattice", "deterministic", "dithered", "sampled", "auto")
SHORT_ADVERSARIES = ("uniform", "feedback", "leave-before-jump", "stop-after-jump", "message-reader")
OBLIVIOUS = {"lattice": "half a step", "blocks": "a step", "hyz": "a step", "hyz-classical": "a step"}


def main() -> Iterator[Table]:
    """`countless lab attack --scheme all --adversary all --sites 256 --alpha 0.05 --events 2e4 --trials 5`."""
    schemes = [name for name in SCHEME_NAMES if name != "exact"]
    base = {"sites": 256, "alpha": 0.05, "delta": 0.05, "events": 20_000}
    matches = run(settings(",".join(schemes), "all", base), 5, seed=1, jobs=None)
    found = {(match.setting.adversary.name, match.setting.scheme): match for match in matches}
    rows = _rows(found, ADVERSARY_NAMES, schemes)
    played = (found[StopAfterJump.name, scheme] for scheme in schemes)
    messages = (f"{match.messages:,.0f}{'*' * unrandomised(match)}" for match in played)
    rows.append(("messages (stop-after-jump)", *messages))
    yield Table("arena-tournament", _columns(schemes), rows)
    yield Table("tournament-short", _columns(SHORT_SCHEMES), _rows(found, SHORT_ADVERSARIES, SHORT_SCHEMES))


def _columns(schemes: Sequence[str]) -> tuple[str, ...]:
    return ("adversary", *(f"`{scheme}`" for scheme in schemes))


def _rows(
    found: Mapping[tuple[str, str], Match], adversaries: Sequence[str], schemes: Sequence[str]
) -> list[tuple[str, ...]]:
    return [(f"`{name}`", *(_cell(found[name, scheme]) for scheme in schemes)) for name in adversaries]


def _cell(match: Match) -> str:
    if match.failures:
        return f"**{match.worst:.2f}** ({match.failures})"
    return f"{match.worst:.2f}{'*' * unrandomised(match)}"


def oblivious() -> Iterator[Table]:
    """`countless lab attack --scheme lattice,... --sites 1024 --alpha 0.01 --events 1e7 --trials 50`."""
    attacked = [Setting(name, StopAfterJump(), 1024, 0.01, 0.05, 10**7) for name in OBLIVIOUS]
    rows = []
    for match in run(attacked, 50, seed=1, jobs=None):
        name, worst = match.setting.scheme, [score.worst for score in match.scores]
        figures = (f"{value:.2f}" for value in (min(worst), mean(worst), max(worst)))
        rows.append((f"`{name}`", OBLIVIOUS[name], f"{match.failures}/{match.trials}", *figures))
    columns = ("scheme", "a site is overestimated by at most", "games broken", "least game", "mean", "worst")
    yield Table("arena-oblivious", columns, rows)


def memoryless() -> Iterator[Table]:
    """An adversary that sees the last answer only, and how it fades when traffic is spread over more machines."""
    groups, names = (1, 2, 4, 8, 16, 64), ("lattice", "hyz")
    attacked = [Setting(name, Autoscaler(group=size), 1024, 0.01, 0.05, 300_000) for size in groups for name in names]
    matches = iter(run(attacked, 3, seed=1, jobs=None))
    rows = [(f"{size}", *(_cell(next(matches)) for _ in names)) for size in groups]
    yield Table("arena-memoryless", ("sites in use", *(f"`{name}`" for name in names)), rows)
