"""Units that are reserved until it is known how many of them are used."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from countless.core.budget.amounts import require_amount


class Hold:
    """Reserved units. A context manager: leaving it settles all units as used, an exception settles none."""

    __slots__ = ("_settle", "_settled", "units")

    def __init__(self, units: int, settle: Callable[[int, int], None]) -> None:
        self.units = units
        self._settle = settle
        self._settled = False

    def settle(self, used: int) -> None:
        """End the hold: `used` units are spent, the others are free again. The second call has no effect."""
        require_amount("used", used, 0, self.units)
        if not self._settled:
            self._settled = True  # first: a settlement that an exception has interrupted must not be repeated
            self._settle(self.units, used)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.settle(0 if kind else self.units)


class Slot(Hold):
    """Units that are in use, of which none is spent. A context manager: leaving it returns them."""

    __slots__ = ()

    def release(self) -> None:
        """Return the units. The second call has no effect."""
        self.settle(0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
