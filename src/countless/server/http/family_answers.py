"""Answers of families: labels as series, the largest of them, and quantiles of distributions."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import nlargest
from math import inf

from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import OVERFLOW
from countless.core.windows.window import TotalAnswer
from countless.errors import InvalidParameter
from countless.server.http.answers import as_of
from countless.server.http.schemas import QuantileAnswer, QuantileRow, RankRow, TopAnswer, TopRow
from countless.server.sessions.counter import Traffic
from countless.server.sessions.family import ServedFamily
from countless.server.sessions.windows import AnyCounter
from countless.server.storage.save_health import SaveHealth

MAX_QUANTILES = 100  # in one request


class LabelView:
    """One label of a family, as a series of a counter. Made for one reading."""

    def __init__(self, name: str, family: ServedFamily) -> None:
        self.name = name
        self._family = family

    @cached_property
    def published_answer(self) -> TotalAnswer:
        _, estimate, lower, upper = self._family.published.answer(self._family.label_of(self.name))
        return self._family.published_answer._replace(estimate=estimate, lower=lower, upper=upper)

    @property
    def changed(self) -> asyncio.Event:
        return self._family.changed

    @property
    def health(self) -> SaveHealth:
        return self._family.health

    @property
    def traffic(self) -> Traffic:
        return self._family.traffic

    @property
    def coordinator(self) -> FamilyCoordinator:
        return self._family.coordinator


AnyPart = AnyCounter | ServedFamily | LabelView


def family_parts(families: Mapping[str, ServedFamily], name: str) -> list[ServedFamily | LabelView]:
    """A family, or a label of one that is known. Empty: it is neither."""
    if name in families:
        return [families[name]]
    family = families.get(name.partition("{")[0])
    if family is None or family.label_of(name) not in family.published.counts:
        return []
    return [LabelView(name, family)]


def family_top(family: ServedFamily, share: float) -> TopAnswer:
    """The labels that may have this share. The overflow label is listed if it has any events."""
    top = family.top(share)
    labels = [*top.labels, *([top.overflow] if OVERFLOW in family.published.counts else [])]
    rows = [TopRow(family.series_name(x.label or ""), x.estimate, x.lower, x.upper, family.state) for x in labels]
    _, estimate, lower, upper = top.total
    return TopAnswer(family.name, share, estimate, lower, upper, family.state, rows, as_of(family.health))


def quantile_answer(family: ServedFamily, shares: Sequence[str], values: Sequence[str]) -> QuantileAnswer:
    if len(shares) + len(values) > MAX_QUANTILES:
        raise InvalidParameter("q", f"{len(shares) + len(values)} values", f"at most {MAX_QUANTILES}")
    quantiles = family.quantiles([_number("q", each) for each in shares])
    ranks = [family.rank(_number("value", each)) for each in values]
    _, estimate, lower, upper = family.published.total()
    return QuantileAnswer(
        counter=family.name,
        estimate=estimate,
        lower=lower,
        upper=upper,
        state=family.state,
        epsilon=family.rule.epsilon,
        accuracy=family.rule.accuracy,
        quantiles=[QuantileRow(q, x, low, None if high == inf else high) for q, x, low, high in quantiles],
        ranks=[RankRow(*each) for each in ranks],
        as_of=as_of(family.health),
    )


def _number(field: str, text: str) -> float:
    try:
        return float(text[:100])
    except ValueError:
        raise InvalidParameter(field, text[:100], "a number") from None


# For the page

SHOWN_LABELS = 20
SHOWN_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


def largest_labels(family: ServedFamily) -> tuple[str, dict[str, object]]:
    known = family.published
    largest = nlargest(SHOWN_LABELS, known.counts, key=lambda label: known.counts[label])
    rows = [[family.series_name(label), *known.answer(label)[1:]] for label in largest]
    return "top", {
        "rows": rows,
        "all": len(known.counts),
        "estimate": known.total().estimate,
        "epsilon": family.rule.epsilon,
    }


def quantiles_shown(family: ServedFamily) -> tuple[str, dict[str, object]]:
    rows = [[q, x, low, None if high == inf else high] for q, x, low, high in family.quantiles(SHOWN_QUANTILES)]
    return "quantiles", {"rows": rows, "epsilon": family.rule.epsilon, "accuracy": family.rule.accuracy}
