"""Answers of families: labels as series, the largest of them, and quantiles of distributions."""

from collections.abc import Sequence
from heapq import nlargest
from math import inf
from typing import NamedTuple

from countless.core.answer import State, whole
from countless.core.family.answer import LabelCounts
from countless.core.family.messages import OVERFLOW
from countless.errors import InvalidParameter, NoWindows
from countless.server.http.answers.published import as_of
from countless.server.http.answers.windows import read_span, span_answer
from countless.server.http.api.schemas import QuantileAnswer, QuantileRow, RankRow, TopAnswer, TopRow
from countless.server.http.api.window_schemas import WindowAnswer
from countless.server.http.history.family_parts import LabelView
from countless.server.kinds.windowed_family import AnyFamily, WindowedFamily

MAX_QUANTILES = 100  # in one request
MAX_TOP_LABELS = 10_000  # in one answer: sites are not served meanwhile, for 70 ms; all of a million took 6 s


class Labels(NamedTuple):
    """Of a family: all that was ever counted, or what was counted in a window."""

    counts: LabelCounts
    state: State


def labels_of(family: AnyFamily, window: str | None) -> Labels:
    if window is None:
        return Labels(family.published, family.state)
    span, answer = family_window(family, window)
    return Labels(span, answer.state)


def family_window(part: AnyFamily | LabelView, window: str) -> tuple[LabelCounts, WindowAnswer]:
    """The labels of the windows of a span, by its name, and the count of the family or the label in it."""
    family = part.family if isinstance(part, LabelView) else part
    if not isinstance(family, WindowedFamily):
        raise NoWindows(family.name, has_rolling=False)
    span, now = read_span(family, window)
    answer, counts = span_answer(family, window, span, now), family.labels_between(span.start, span.end)
    if isinstance(part, LabelView):
        _, *numbers = counts.answer(family.label_of(part.name))
        answer.estimate, answer.lower, answer.upper = whole(*numbers)
        answer.counter = part.name
    return counts, answer


def family_top(family: AnyFamily, share: float, window: str | None = None) -> TopAnswer:
    """The labels that may have this share. The overflow label is listed if it has any events. Raises InvalidParameter
    if they are too many.
    """
    counts, state = labels_of(family, window)
    top = family.top(share, counts, MAX_TOP_LABELS)
    labels = [*top.labels, *([top.overflow] if OVERFLOW in counts.counts else [])]
    rows = [TopRow(family.series_name(label or ""), *whole(*numbers), state) for label, *numbers in labels]
    _, *numbers = top.total
    return TopAnswer(family.name, share, *whole(*numbers), state, rows, as_of(family.health))


def quantile_answer(
    family: AnyFamily, shares: Sequence[str], values: Sequence[str], window: str | None = None
) -> QuantileAnswer:
    if len(shares) + len(values) > MAX_QUANTILES:
        raise InvalidParameter("q", f"{len(shares) + len(values)} values", f"at most {MAX_QUANTILES}")
    counts, state = labels_of(family, window)
    quantiles = family.quantiles([_number("q", each) for each in shares], counts)
    ranks = [family.rank(_number("value", each), counts) for each in values]
    _, *numbers = counts.total()
    estimate, lower, upper = whole(*numbers)
    return QuantileAnswer(
        counter=family.name,
        estimate=estimate,
        lower=lower,
        upper=upper,
        state=state,
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


def largest_labels(family: AnyFamily, counts: LabelCounts | None = None) -> dict[str, object]:
    known = family.published if counts is None else counts
    largest = nlargest(SHOWN_LABELS, known.counts, key=lambda label: known.counts[label])
    rows = [[family.series_name(label), *whole(*known.answer(label)[1:])] for label in largest]
    return {
        "rows": rows,
        "all": len(known.counts),
        "estimate": round(known.total().estimate),
        "epsilon": family.rule.epsilon,
    }


def quantiles_shown(family: AnyFamily, counts: LabelCounts | None = None) -> dict[str, object]:
    found = family.quantiles(SHOWN_QUANTILES, counts)
    rows = [[q, x, low, None if high == inf else high] for q, x, low, high in found]
    return {"rows": rows, "epsilon": family.rule.epsilon, "accuracy": family.rule.accuracy}
