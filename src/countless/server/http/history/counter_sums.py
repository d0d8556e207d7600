"""A counter with labelled series as one counter, for the page and its history: the sum of its parts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from countless.core.answer import whole, worst_state
from countless.core.windows.window import TotalAnswer
from countless.server.sessions.counter import Traffic
from countless.server.sessions.labels import counter_of
from countless.server.sessions.windows.windowed_counter import AnyCounter


class _NoRounds(NamedTuple):
    phase: None = None


class CounterSum:
    """Made for one reading: the answer is that of the moment when it is first asked for."""

    coordinator = _NoRounds()

    def __init__(self, name: str, parts: Sequence[AnyCounter]) -> None:
        self.name = name
        self.parts = parts

    @cached_property
    def published_answer(self) -> TotalAnswer:
        answers = [part.published_answer for part in self.parts]
        numbers = [whole(answer.estimate, *answer.bounds) for answer in answers]  # sums of floats depend on their order
        estimate, lower, upper = (sum(each) for each in zip(*numbers, strict=True))
        largest = max(answers, key=lambda answer: answer.sites)  # how many sites there are in all is not known
        return TotalAnswer(
            estimate=estimate,
            lower=lower,
            upper=upper,
            alpha=max(answer.alpha for answer in answers),
            delta=sum(answer.delta for answer in answers),
            state=worst_state(answer.state for answer in answers),
            round=0,
            sites=largest.sites,
            scheme=largest.scheme,
            silent=max((answer.silent for answer in answers), key=len),
        )

    @property
    def traffic(self) -> Traffic:
        """That of the oldest part: the same object as long as there is this part."""
        return min((part.traffic for part in self.parts), key=lambda traffic: traffic.began)

    @property
    def messages(self) -> int:
        return sum(part.traffic.up + part.traffic.down for part in self.parts)


def by_counter(counters: Mapping[str, AnyCounter]) -> dict[str, AnyCounter | CounterSum]:
    """One entry for each counter, however many labelled series it has."""
    parts: defaultdict[str, list[AnyCounter]] = defaultdict(list)
    for name, counter in counters.items():
        parts[counter_of(name) or name].append(counter)
    return {name: as_one(name, found) for name, found in parts.items()}


def as_one(name: str, parts: Iterable[AnyCounter]) -> AnyCounter | CounterSum:
    """A counter without labels is itself."""
    found = list(parts)
    return found[0] if len(found) == 1 and found[0].name == name else CounterSum(name, found)
