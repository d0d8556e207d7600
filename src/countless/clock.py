"""A monotonic clock that also goes on while the machine sleeps, where the system has one."""

import time
from collections.abc import Callable
from functools import partial

Clock = Callable[[], float]

steady_clock: Clock = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
