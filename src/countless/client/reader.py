"""Reading answers in a program, with types and in plain text.

reader = countless.Reader("http://127.0.0.1:2686")
print(reader.window("requests", "today"))     # requests today: 1,204,332 (from 1,203,900 to 1,204,800; open ...)
reader.rolling("requests", "15m").lower       # at least so many in the last 15 minutes
reader.rate("requests", over="5m").estimate   # events per second
reader.top("requests", share=0.02).series     # the labelled series with two per cent or more
reader.quantile("latency_ms", 0.99)           # a value, with bounds
"""

from countless.client.answers import (
    Quantiles,
    Rate,
    RollingCount,
    TopCounts,
    TotalCount,
    WindowCount,
    parse_quantiles,
    parse_rolling,
    parse_top,
    parse_total,
    parse_window,
)
from countless.client.api import ApiClient
from countless.client.environment import url_or_default
from countless.core.durations import ROLLING, require_duration


class Reader:
    """Reads answers of a coordinator; of a cluster, any of its coordinators answers for all counters.

    What is not given comes from the environment, as for `connect`: `COUNTLESS_URL`, and `COUNTLESS_TOKEN` or
    `COUNTLESS_TOKEN_FILE`, a token of scope read. Every call is one request; a failure is a `CountlessError`.
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 10.0) -> None:
        self._api = ApiClient(url_or_default(url), token, timeout)

    def answer(self, counter: str) -> TotalCount:
        """All that was ever counted."""
        return parse_total(self._api.answer(counter))

    def window(self, counter: str, which: str = "now") -> WindowCount:
        """The count of `now`, `last`, `this-hour`, `last-hour` (also minute, day, month), `today`, `yesterday`, a date
        such as `2026-11-16`, or of the window that contains a time such as `2026-11-16T10:30`.

        For counters with windows, by the clock of the coordinator and in the time zone of the counter.
        """
        return parse_window(self._api.answer(counter, window=which))

    def rolling(self, counter: str, over: str) -> RollingCount:
        """The count of the last `15m`, `1h`, `7d`. For every counter."""
        require_duration("over", over, *ROLLING)
        return parse_rolling(self._api.answer(counter, rolling=over))

    def top(
        self, counter: str, share: float = 0.02, *, window: str | None = None, rolling: str | None = None
    ) -> TopCounts:
        """The labelled series that may have this share of the counter's count: of all that was ever counted, of a
        window as in `window`, or of the last `rolling` minutes. None that has the share is missing. Of a family, the
        labels; `rolling` is not for families, and `share` is at least its epsilon for none to be missing.
        """
        query = {"window": window, "rolling": rolling}
        given = {name: value for name, value in query.items() if value is not None}
        return parse_top(self._api.top(counter, share=repr(share), **given))

    def quantile(self, distribution: str, *shares: float, window: str | None = None) -> Quantiles:
        """Values of a distribution: the median, 0.9 and 0.99, or these `shares`; of a window as in `window`."""
        return parse_quantiles(self._api.quantiles(distribution, *map(repr, shares), window=window))

    def rate(self, counter: str, over: str = "5m") -> Rate:
        """Events per second, on average over the last so many minutes. For every counter."""
        return self.rolling(counter, over).rate
