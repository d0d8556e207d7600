"""Games against a family: traffic that does not react, and adversaries that see the answers.

An adversary attacks one label, at one site after the other. It is given answers only.

| name     | kind      | idea                                                                                        |
|----------|-----------|---------------------------------------------------------------------------------------------|
| `steady` | traffic   | a few events of the label at every site, whatever the answers are                           |
| `raise`  | adversary | leave each site just after a report of it: the label seems larger than it is                |
| `hide`   | adversary | after a report, one event less than the next one takes: the label seems smaller than it is  |
"""

from collections.abc import Callable
from typing import NamedTuple

from countless.errors import UnknownName
from countless.inprocess.family import Family
from countless_lab.lattice_family import FamilyScheme, new_family

TARGET = "target"
OTHER = "other"


class FamilyGame(NamedTuple):
    """The target at the end of a game."""

    events: int
    estimate: float
    error: float  # in units of epsilon times the total
    within: bool  # whether the interval contains the count


def steady(family: Family, site: int) -> int:
    family.site(site).add(TARGET, 50)
    return 50


def lift(family: Family, site: int) -> int:
    return _until_a_report(family, site)[0]


def hide(family: Family, site: int) -> int:
    events, step = _until_a_report(family, site)
    family.site(site).add(TARGET, step - 1)
    return events + step - 1


def _until_a_report(family: Family, site: int) -> tuple[int, int]:
    """Return the number of events it took, and the rise of the estimate: the step."""
    before, events = family.answer(TARGET).estimate, 0
    while family.answer(TARGET).estimate == before:
        family.site(site).add(TARGET)
        events += 1
    return events, max(1, round(family.answer(TARGET).estimate - before))


PLAYERS: dict[str, Callable[[Family, int], int]] = {"steady": steady, "raise": lift, "hide": hide}


def play(name: str, scheme: FamilyScheme, sites: int = 100, epsilon: float = 0.01, seed: int = 1) -> FamilyGame:
    """First a label of the others, so that steps are long; then the target, at every site."""
    if name not in PLAYERS:
        raise UnknownName("name", name, PLAYERS)
    family, total, count = new_family(scheme, sites, epsilon, seed), 0, 0
    for _ in range(40):
        for site in range(sites):
            family.site(site).add(OTHER, 50)
            total += 50
    for site in range(sites):
        count += PLAYERS[name](family, site)
    answer = family.answer(TARGET)
    error = (answer.estimate - count) / (epsilon * (total + count))
    return FamilyGame(count, answer.estimate, error, answer.contains(count))
