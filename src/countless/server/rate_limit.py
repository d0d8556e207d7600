"""The limit on the messages of one site."""

from collections.abc import Callable

BURST_S = 4.0  # a site may send this many seconds' worth at once: after a reconnect it has items for every counter


class RateLimit:
    __slots__ = ("_available", "_clock", "_per_second", "_refilled_at")

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._available = BURST_S * per_second
        self._clock = clock
        self._refilled_at = clock()

    def take(self, messages: int) -> float:
        """Count these messages; the seconds until they are within the limit, 0 if they are.

        It refills only when nothing is left, so that the clock is not read for every frame.
        """
        self._available -= messages
        if self._available >= 0:
            return 0.0
        now = self._clock()
        self._available += min(BURST_S, now - self._refilled_at) * self._per_second
        self._refilled_at = now
        return max(0.0, -self._available / self._per_second)
