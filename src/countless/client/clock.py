"""A monotonic clock that also goes on while the machine sleeps, where the system has one."""

import time
from functools import partial

steady_clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
