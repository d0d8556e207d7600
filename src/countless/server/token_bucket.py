"""The limit on the messages of one site."""

from time import monotonic

BURST_S = 4.0  # a site may send this many seconds' worth at once: after a reconnect it has items for every counter


class TokenBucket:
    __slots__ = ("_per_second", "_refilled", "_tokens")

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._tokens = BURST_S * per_second
        self._refilled = monotonic()

    def take(self, messages: int) -> float:
        """Count these messages; the seconds until they are within the limit, 0 if they are.

        The bucket is refilled when it is empty, so that the clock is not read for every frame.
        """
        self._tokens -= messages
        if self._tokens >= 0:
            return 0.0
        now = monotonic()
        self._tokens += min(BURST_S, now - self._refilled) * self._per_second
        self._refilled = now
        return max(0.0, -self._tokens / self._per_second)
