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
from countless.client.transport.endpoint import url_or_default
from countless.core.parameters import require_rolling
from countless.errors import InvalidParameter


class Reader:
    """Read answers without counting. Every call is one request; a failure raises `ServiceError`.

    Args:
        url: Address of the coordinator, or of any coordinator of a cluster. `COUNTLESS_URL`, as for `connect`.
        token: A token of scope read. `COUNTLESS_TOKEN` or `COUNTLESS_TOKEN_FILE`, as for `connect`.
        timeout: Of a request, in seconds.
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 10.0) -> None:
        self._api = ApiClient(url_or_default(url), token, timeout)

    def answer(self, counter: str) -> TotalCount:
        """Read the total of everything that was ever counted."""
        return parse_total(self._api.answer(counter))

    def window(self, counter: str, which: str = "now") -> WindowCount:
        """Read the count of a window, or of several together, by the coordinator's clock in the counter's time zone.

        `which` is `now`, `last`, `this-hour`, `last-hour` (or minute, day, month), `today`, `yesterday`, a date
        such as `2026-11-16`, or a time such as `2026-11-16T10:30` for the window that contains it.
        """
        return parse_window(self._api.answer(counter, window=which))

    def rolling(self, counter: str, over: str) -> RollingCount:
        """Read the count of the last `15m`, `1h` or `7d`, of any counter."""
        require_rolling("over", over)
        return parse_rolling(self._api.answer(counter, rolling=over))

    def top(
        self, counter: str, share: float = 0.02, *, window: str | None = None, rolling: str | None = None
    ) -> TopCounts:
        """Read the labelled series, or labels of a family, that may have this share.

        None that has it is missing while the bounds hold, except those counted together beyond a cap.

        Args:
            counter: Its name.
            share: The share. For a family at least its `epsilon`, or labels may be missing.
            window: Of this window's count, as in `window`.
            rolling: Of the count of the last `15m`, `1h` ...; not for families.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InvalidParameter("share", share, "a number above 0, at most 1, such as 0.02")
        query = {"window": window, "rolling": rolling}
        given = {name: value for name, value in query.items() if value is not None}
        return parse_top(self._api.top(counter, share=repr(float(share)), **given))

    def quantile(self, distribution: str, *shares: float, window: str | None = None) -> Quantiles:
        """Read quantiles of a distribution.

        Args:
            distribution: Its name.
            shares: Which quantiles; 0.5, 0.9 and 0.99 unless given.
            window: Of this window's observations, as in `window`.
        """
        for share in shares:
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise InvalidParameter("shares", share, "numbers from 0 to 1, such as 0.99")
        return parse_quantiles(self._api.quantiles(distribution, *map(repr, map(float, shares)), window=window))

    def rate(self, counter: str, over: str = "5m") -> Rate:
        """Read the events per second, on average over the last `5m`, `1h` ..., of any counter."""
        return self.rolling(counter, over).rate
