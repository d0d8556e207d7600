"""`auto` against the best single scheme chosen in hindsight, from the first event to any total (claim C28)."""

from dataclasses import dataclass

from countless.schemes.auto import AGAINST
from countless.simulation.run import fast_run
from countless.simulation.streams import stream_named


@dataclass(frozen=True, slots=True)
class Regret:
    """The moment at which `auto` looked worst."""

    ratio: float  # its messages over those of the best single scheme up to the same event
    best: str
    events: int
    over_exact: float  # its largest excess over one message for each event, as a fraction of those
    messages: dict[str, int]  # at the end


def regret(
    stream: str,
    sites: int,
    events: int,
    *,
    alpha: float,
    delta: float = 0.05,
    adversary: str = "adaptive",
    seed: int = 1,
) -> Regret:
    """Run `auto` and every single scheme that it may pick over the same stream, and compare all the way."""
    names = ["auto", "deterministic", *(scheme.name for scheme in AGAINST[adversary])]
    courses = {}
    for name in names:
        source = stream_named(stream, sites, events, seed=seed)
        courses[name] = fast_run(name, source, events, alpha=alpha, delta=delta, seed=seed, adversary=adversary).course
    worst, excess = (0.0, "", 0), 0.0
    for index, point in enumerate(courses["auto"]):
        rivals = [(point.events, "exact")] + [(courses[name][index].messages, name) for name in names[1:]]
        best, name = min(rivals)
        worst = max(worst, (point.messages / max(1, best), name, point.events))
        excess = max(excess, point.messages / point.events - 1)
    return Regret(*worst, excess, {name: course[-1].messages for name, course in courses.items()})
