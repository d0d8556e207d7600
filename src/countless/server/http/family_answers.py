"""Answers of families: labels as series, the largest of them, and quantiles of distributions."""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from countless.core.family.messages import OVERFLOW
from countless.errors import InvalidParameter
from countless.server.http.answers import now_utc
from countless.server.http.schemas import QuantileAnswer, QuantileRow, RankRow, TopAnswer, TopRow
from countless.server.sessions.family import FamilyAnswer, ServedFamily
from countless.server.sessions.windows import AnyCounter

MAX_QUANTILES = 100  # in one request


class LabelView(NamedTuple):
    """One label of a family, as a series of a counter."""

    name: str
    published_answer: FamilyAnswer
    changed: asyncio.Event


AnyPart = AnyCounter | ServedFamily | LabelView


def family_parts(families: Mapping[str, ServedFamily], name: str) -> list[AnyPart]:
    """A family, or a label of one that is known. Empty: it is neither."""
    if name in families:
        return [families[name]]
    family = families.get(name.partition("{")[0])
    if family is None or family.label_of(name) not in family.coordinator.known:
        return []
    return [LabelView(name, family.label_answer(family.label_of(name)), family.changed)]


def family_top(family: ServedFamily, share: float) -> TopAnswer:
    """The labels that may have this share. The overflow label is listed if it has any events."""
    top = family.top(share)
    labels = [*top.labels, *([top.overflow] if OVERFLOW in family.coordinator.known else [])]
    rows = [TopRow(family.series_name(x.label or ""), x.estimate, x.lower, x.upper, top.state) for x in labels]
    _, estimate, lower, upper = top.total
    return TopAnswer(family.name, share, estimate, lower, upper, top.state, rows, now_utc())


def quantile_answer(family: ServedFamily, shares: Sequence[str], values: Sequence[str]) -> QuantileAnswer:
    if len(shares) + len(values) > MAX_QUANTILES:
        raise InvalidParameter("q", f"{len(shares) + len(values)} values", f"at most {MAX_QUANTILES}")
    quantiles = family.quantiles([_number("q", each) for each in shares])
    ranks = [family.rank(_number("value", each)) for each in values]
    _, estimate, lower, upper = family.coordinator.total()
    return QuantileAnswer(
        counter=family.name,
        estimate=estimate,
        lower=lower,
        upper=upper,
        state=family.coordinator.state,
        epsilon=family.rule.epsilon,
        accuracy=family.rule.accuracy,
        quantiles=[QuantileRow(q, x, low, None if high == inf else high) for q, x, low, high in quantiles],
        ranks=[RankRow(*each) for each in ranks],
        as_of=now_utc(),
    )


def _number(field: str, text: str) -> float:
    try:
        return float(text[:100])
    except ValueError:
        raise InvalidParameter(field, text[:100], "a number") from None
