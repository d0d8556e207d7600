"""Units that are reserved until it is known how many of them are used."""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from countless.core.budget.amounts import require_amount
from countless.errors import HoldExpired


class Hold:
    """Reserved units. A context manager: leaving it settles all units as used, an exception settles none.

    Not settled within `expires_in` seconds, all units count as spent, or are free again if the budget limits jobs at
    once. None: it never expires.
    """

    __slots__ = ("_settle", "_settled", "expires_in", "units")

    def __init__(self, units: int, settle: Callable[[int, int], None], expires_in: float | None = None) -> None:
        self.units = units
        self.expires_in = expires_in
        self._settle = settle
        self._settled = False

    def settle(self, used: int) -> None:
        """End the hold: `used` units are spent, the others are free again. The second call has no effect.

        Raises `HoldExpired`, and changes nothing, if it is too late.
        """
        require_amount("used", used, 0, self.units)
        if not self._settled:
            self._settled = True  # first: a settlement that an exception has interrupted must not be repeated
            try:
                self._settle(self.units, used)
            except HoldExpired:
                self._settled = False  # nothing has changed: the next call raises, too
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(HoldExpired):  # the work is done, and what it may have used is counted
            self.settle(0 if kind else self.units)


class Slot(Hold):
    """Units that are in use. A context manager: leaving it returns them. If it expires, it ends like any `Hold`."""

    __slots__ = ()

    def release(self) -> None:
        """Return the units. The second call has no effect. Raises `HoldExpired` if it is too late."""
        self.settle(0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(HoldExpired):
            self.release()
