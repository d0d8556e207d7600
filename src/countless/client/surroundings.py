"""Clocks, random numbers and limits that a client takes from outside. The fault simulator has others."""

from time import time
from typing import NamedTuple

from countless.clock import Clock, steady_clock
from countless.core.random_source import RandomSource
from countless.randomness import SYSTEM_RANDOM
from countless.wire.frames import MAX_FRAME_BYTES


class ClientSurroundings(NamedTuple):
    clock: Clock = steady_clock
    wall_clock: Clock = time  # decides to which window an event belongs, and a request to which period
    rng: RandomSource = SYSTEM_RANDOM
    max_frame_bytes: int = MAX_FRAME_BYTES


REAL = ClientSurroundings()
