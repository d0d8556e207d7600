"""Constants of a coordinator that operators cannot set. The fault simulator has others, which few events reach."""

from typing import NamedTuple


class Tuning(NamedTuple):
    prune_interval_s: float = 60.0  # of tombstones
    clock_readings: int = 10  # one in each interval; tombstones are as old as the earliest reading says
    labels_nearly_full: float = 0.75  # of a limit: from then on sites are told to count no new labels by name
    sum_interval_s: float = 0.25  # between two answers of a watch of a sum


TUNING = Tuning()
