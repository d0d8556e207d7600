"""The tournament: every scheme against every adversary, and what each result means."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import Any

from countless.errors import UnknownName
from countless.schemes.registry import ADVERSARIES, SCHEMES, scheme_named
from countless_lab.arena.adversaries.feedback import Feedback
from countless_lab.arena.frameworks.registry import FRAMEWORKS
from countless_lab.arena.match import Match, Setting
from countless_lab.arena.negative_controls import NEGATIVE_CONTROLS
from countless_lab.arena.registry import ADVERSARIES as KINDS
from countless_lab.arena.registry import CONTROLS, SEARCH, adversary_named
from countless_lab.arena.search import evolve
from countless_lab.simulation.stream import Stream
from countless_lab.simulation.world import NO_SECRETS

SCHEME_NAMES = tuple(SCHEMES)
ADVERSARY_NAMES = tuple(KINDS)


def names(asked: str, known: Iterable[str]) -> list[str]:
    """`all`, or names separated by commas."""
    return list(known) if asked == "all" else [name.strip() for name in asked.split(",")]


def settings(
    schemes: str,
    adversaries: str,
    base: dict[str, Any],
    *,
    seed: int = 1,
    tries: float = 1,
    seconds: float = inf,
    trace: Stream | None = None,
) -> list[Setting]:
    """Every pair of the names. `search` finds an adversary for each scheme; `feedback` may follow a trace."""
    found = []
    for scheme in names(schemes, SCHEME_NAMES):
        known = [*SCHEME_NAMES, *NEGATIVE_CONTROLS, *FRAMEWORKS, "all"]
        if scheme not in known:
            raise UnknownName("scheme", scheme, known)
        for name in names(adversaries, ADVERSARY_NAMES):
            if name == SEARCH:
                setting = Setting(scheme, Feedback(), **base)
                searched = evolve(setting, seed, tries=tries, seconds=seconds)
                found.append(replace(setting, adversary=searched.adversary))
            elif name == Feedback.name and trace is not None:
                found.append(Setting(scheme, Feedback.following(trace, base["events"]), **base))
            else:
                found.append(Setting(scheme, adversary_named(name), **base))
    return found


def claimed(setting: Setting) -> bool:
    if setting.scheme not in SCHEMES:
        return False
    safe = scheme_named(setting.scheme, setting.against).safe_against
    if setting.adversary.sees == "everything":
        needed = "sees-everything"
    else:
        needed = "oblivious" if isinstance(setting.adversary, CONTROLS) else "adaptive"
    return ADVERSARIES.index(safe) >= ADVERSARIES.index(needed)


def guarantee_violated(match: Match) -> bool:
    """True if the scheme's guarantee covers this adversary and failed more often than delta, beyond chance."""
    return claimed(match.setting) and match.failure_rate[0] > match.setting.delta


def unrandomised(match: Match) -> bool:
    """True if a scheme with secrets played without them: the row then says nothing about the scheme."""
    return not match.randomised and match.setting.scheme not in NO_SECRETS


def as_json(match: Match, seed: int) -> dict[str, Any]:
    setting, (lower, upper) = match.setting, match.failure_rate
    first = next((score for score in match.scores if score.violated_at is not None), None)
    return {
        "scheme": setting.scheme,
        "adversary": setting.adversary.name,
        "parameters": repr(setting.adversary),
        "sees": setting.adversary.sees,
        "claimed": claimed(setting),
        "randomised": match.randomised,
        "sites": setting.sites,
        "alpha": setting.alpha,
        "delta": setting.delta,
        "events": setting.events,
        "seed": seed,
        "trials": match.trials,
        "failures": match.failures,
        "failure_rate_lower": lower,
        "failure_rate_upper": upper,
        "worst_error_over_alpha": match.worst,
        "messages": match.messages,
        "first_violation": None if first is None else {"seed": first.seed, "total": first.violated_at},
    }
