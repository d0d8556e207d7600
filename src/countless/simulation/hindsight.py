"""`auto` against the best single scheme chosen in hindsight, from the first event to any total (claim C28).

No tracker that ever leaves exact reporting can stay at or below one message for each event all the time: the first
message that tells a site another pace comes before anything is saved by it. So two numbers are kept: the worst ratio
as it is, and the worst ratio once that one message for each site is allowed for.
"""

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
    settled: float  # the largest ratio, one message for each site not counted
    over_exact: float  # the largest excess over one message for each event, as messages for each site
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
    worst, settled, excess = (0.0, "", 0), 0.0, 0.0
    for index, point in enumerate(courses["auto"]):
        rivals = [(point.events, "exact")] + [(courses[name][index].messages, name) for name in names[1:]]
        best, name = min(rivals)
        worst = max(worst, (point.messages / max(1, best), name, point.events))
        settled = max(settled, (point.messages - sites) / max(1, best))
        excess = max(excess, (point.messages - point.events) / sites)
    return Regret(*worst, settled, excess, {name: course[-1].messages for name, course in courses.items()})
