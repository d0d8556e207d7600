"""Clocks, names and constants that a member takes from outside. The fault simulator has others."""

from collections.abc import Callable
from functools import partial
from signal import SIGTERM, raise_signal
from time import monotonic, time
from typing import NamedTuple

from countless.randomness import random_name
from countless.server.cluster.log_store import LogStore
from countless.server.tuning import TUNING, Tuning


class Surroundings(NamedTuple):
    clock: Callable[[], float] = monotonic
    wall_clock: Callable[[], float] = time
    new_name: Callable[[], str] = random_name  # of a member, or of one ownership of a shard
    store: type[LogStore] = LogStore
    tick_s: float = 0.25  # at most, between two looks for sites that time out
    poll_s: float = 2.0  # a reader that waits for a change gets an answer then; a forwarded request may take longer
    retry_s: float = 0.2  # until such a question is asked again
    tuning: Tuning = TUNING
    end_process: Callable[[], None] = partial(raise_signal, SIGTERM)  # of a member that has failed


PRODUCTION = Surroundings()
