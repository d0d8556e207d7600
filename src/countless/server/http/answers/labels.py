"""Answers of families: labels as series, the largest of them, and quantiles of distributions."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import nlargest
from math import inf
from typing import Any, NamedTuple

from countless.core.answer import State, whole
from countless.core.family.answer import LabelCounts
from countless.core.family.messages import OVERFLOW
from countless.errors import InvalidParameter, UnknownName
from countless.server.http.answers.published import as_of
from countless.server.http.answers.windows import span_answer
from countless.server.http.api.schemas import QuantileAnswer, QuantileRow, RankRow, TopAnswer, TopRow
from countless.server.sessions.readable import CountsReader, LabelReader, Readable, ValueReader

MAX_QUANTILES = 100  # in one request
MAX_TOP_LABELS = 10_000  # in one answer: sites are not served meanwhile, for 70 ms; all of a million took 6 s


class Counts(NamedTuple):
    """The counts of a family: all that was ever counted, or those of a window."""

    counts: LabelCounts
    state: State


def counts_of(family: CountsReader, window: str | None) -> Counts:
    if window is None:
        return Counts(family.published, family.published_answer.state)
    span, answer = span_answer(family, window)
    return Counts(family.labels_between(span.start, span.end), answer.state)


def family_top(family: LabelReader, share: float, window: str | None = None) -> TopAnswer:
    """The labels that may have this share. The overflow label is listed if it has any events. Raises InvalidParameter
    if they are too many.
    """
    counts, state = counts_of(family, window)
    top = counts.top(share, MAX_TOP_LABELS)
    listed = [*top.labels, *([top.overflow] if OVERFLOW in counts.counts else [])]
    rows = [TopRow(family.series_name(label or ""), *whole(*numbers), state) for label, *numbers in listed]
    _, *numbers = top.total
    return TopAnswer(family.name, share, *whole(*numbers), state, rows, as_of(family.health))


def distribution_named(by_name: Mapping[str, Readable], name: str) -> ValueReader:
    found = by_name.get(name)
    if found is not None and found.values is not None:
        return found.values
    if found is not None and found.labels is not None:
        message = f"{name!r} has labels, and no quantiles: ask for its top, or for those of a distribution"
        raise InvalidParameter("distribution", name, message=message)
    raise UnknownName("distribution", name, [each.name for each in by_name.values() if each.values is not None])


def quantile_answer(
    distribution: ValueReader, shares: Sequence[str], values: Sequence[str], window: str | None = None
) -> QuantileAnswer:
    if len(shares) + len(values) > MAX_QUANTILES:
        raise InvalidParameter("q", f"{len(shares) + len(values)} values", f"at most {MAX_QUANTILES}")
    counts, state = counts_of(distribution, window)
    quantiles = distribution.quantiles([_number("q", each) for each in shares], counts)
    ranks = [distribution.rank(_number("value", each), counts) for each in values]
    _, *numbers = counts.total()
    estimate, lower, upper = whole(*numbers)
    return QuantileAnswer(
        counter=distribution.name,
        estimate=estimate,
        lower=lower,
        upper=upper,
        state=state,
        epsilon=distribution.epsilon,
        accuracy=distribution.accuracy,
        quantiles=[QuantileRow(q, x, low, None if high == inf else high) for q, x, low, high in quantiles],
        ranks=[RankRow(*each) for each in ranks],
        as_of=as_of(distribution.health),
    )


def _number(field: str, text: str) -> float:
    try:
        return float(text[:100])
    except ValueError:
        raise InvalidParameter(field, text[:100], "a number") from None


# For the page

SHOWN_LABELS = 20
SHOWN_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


def labels_or_quantiles(counter: Readable) -> tuple[str, dict[str, Any]] | None:
    """`top` of a family, `quantiles` of a distribution; with windows also of the present one and of the last."""
    if counter.labels is not None:
        return "top", _with_windows(counter.labels, partial(largest_labels, counter.labels))
    if counter.values is not None:
        return "quantiles", _with_windows(counter.values, partial(quantiles_shown, counter.values))
    return None


def _with_windows(family: CountsReader, shown: Callable[[LabelCounts], dict[str, Any]]) -> dict[str, Any]:
    data = shown(family.published)
    if family.windows is not None:
        data["per"] = family.windows.calendar.per
        data["windows"] = {which: shown(counts_of(family, which).counts) for which in ("now", "last")}
    return data


def largest_labels(labels: LabelReader, counts: LabelCounts) -> dict[str, Any]:
    largest = nlargest(SHOWN_LABELS, counts.counts, key=lambda label: counts.counts[label])
    rows = [[labels.series_name(label), *whole(*counts.answer(label)[1:])] for label in largest]
    return {
        "rows": rows,
        "all": len(counts.counts),
        "estimate": round(counts.total().estimate),
        "epsilon": labels.epsilon,
    }


def quantiles_shown(distribution: ValueReader, counts: LabelCounts) -> dict[str, Any]:
    found = distribution.quantiles(SHOWN_QUANTILES, counts)
    rows = [[q, x, low, None if high == inf else high] for q, x, low, high in found]
    return {"rows": rows, "epsilon": distribution.epsilon, "accuracy": distribution.accuracy}
