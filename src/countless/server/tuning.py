"""Constants, random numbers and threads of a coordinator that operators can't set.

The fault simulator has others: constants that few events reach, numbers from a seed, and no threads.
"""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from countless.core.random_source import RandomSource
from countless.randomness import SYSTEM_RANDOM
from countless.wire.frames import MAX_FRAME_BYTES


class Tuning(NamedTuple):
    prune_interval_s: float = 60.0  # of tombstones
    clock_readings: int = 10  # one in each interval; tombstones are as old as the earliest reading says
    labels_nearly_full: float = 0.75  # of a limit: from then on sites are told to count no new labels by name
    sum_interval_s: float = 0.25  # between two answers of a watch of a sum
    max_frame_bytes: int = MAX_FRAME_BYTES
    family_windows: int | None = None  # that are kept of a family which a site begins; None: `DEFAULT_KEEP`
    rng: RandomSource = SYSTEM_RANDOM
    planning: Callable[[], Executor] = partial(ThreadPoolExecutor, 1, "countless-planner")


TUNING = Tuning()
