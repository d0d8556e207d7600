"""What the next events will cost deterministic sites: as their counts say, corrected by how wrong that lately was.

The counts show the sites' shares of the traffic. That is right while sites keep their shares, and wrong where a hot
spot wanders or sites wake up one after the other; so the forecast is compared with what came.
"""

from collections import Counter
from math import expm1, log, log1p, sqrt

from countless.core.estimator import RoundContext
from countless.core.ledger import Entry
from countless.core.triggers import GeometricGrowth
from countless.schemes.deterministic import Growing

WINDOW = 1.25  # a forecast is compared with what came when the total has grown by this factor
MOST_SURPRISE = 1.5  # a forecast is not corrected by more than this


def speaking_sites(counts: Counter[int], events: float) -> float:
    """How many sites will count something while `events` happen: a site's share is what it has shown, and one more."""
    shown = sum((count + 1) * sites for count, sites in counts.items())
    return sum(sites * -expm1(-events * (count + 1) / shown) for count, sites in counts.items())


def sites_beyond(counts: Counter[int], events: float, limit: float) -> int:
    """How many sites will have counted more than `limit` when `events` have happened, in the same shares."""
    shown = sum((count + 1) * sites for count, sites in counts.items())
    return sum(sites for count, sites in counts.items() if count + events * (count + 1) / shown > limit)


def deterministic_cost(counts: Counter[int], alpha: float, events: float) -> float:
    """Messages of deterministic sites while `events` happen, in the same shares.

    A site at n next speaks floor(2 alpha n/(1-alpha)) + 1 events later: at every event while that is 1, and then, on
    average, half an event later than without the rounding.
    """
    shown = sum((count + 1) * sites for count, sites in counts.items())
    extra, exact_below, cost = 2 * alpha / (1 - alpha), GeometricGrowth(alpha).exact_below, 0.0
    for count, sites in counts.items():
        end = count + events * (count + 1) / shown
        cost += sites * max(0.0, min(end, exact_below) - count)
        cost += sites * max(0.0, log((extra * end + 0.5) / (extra * max(count, exact_below) + 0.5)) / extra)
    return cost


class Watched(Growing):
    """Deterministic reporting that compares what it costs with what was forecast, and counts who joins."""

    def __init__(self, alpha: float, reconsider_at: int) -> None:
        super().__init__(alpha, reconsider_at)
        self._last: tuple[int, int, float] | None = None  # total, messages and forecast per event at the last look
        self._joins = 0
        self.surprise = 1.0  # messages that came lately, for each that was forecast
        self.power = 1.0  # of the total, by which the messages grew lately
        self.newcomers = 0  # sites that came lately

    def join(self, entry: Entry) -> None:
        """One more range."""
        super().join(entry)
        self._joins += 1

    def look(self, context: RoundContext, counts: Counter[int]) -> None:
        """Compare an earlier forecast with what came, and make another."""
        if self._last is not None:
            total, messages, forecast = self._last
            if context.total < WINDOW * total:
                return
            expected = forecast * (context.total - total)
            self.surprise = (context.messages - messages) / expected if expected else 1.0  # none where no site was left
            self.power = min(1.0, log(context.messages / messages) / log(context.total / total))
            self.newcomers = self._joins
        self._joins = 0
        events = max(1.0, (WINDOW - 1) * context.total)
        self._last = context.total, context.messages, deterministic_cost(counts, context.alpha, events) / events

    def forecast(self, context: RoundContext, counts: Counter[int], events: float) -> float:
        """Messages while `events` happen: what the counts say, corrected.

        More than was forecast is believed, within limits, and as much again for each window ahead: other sites are busy
        every time. Less is believed by half: sites may be about to wake up.
        """
        windows = log1p(events / context.total) / log(WINDOW)
        correction = min(MOST_SURPRISE, self.surprise**windows) if self.surprise > 1 else sqrt(self.surprise)
        return min(events, correction * deterministic_cost(counts, context.alpha, events))
