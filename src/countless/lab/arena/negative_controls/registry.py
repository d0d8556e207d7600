"""The negative controls by name: trackers with one known flaw each. None of them is for use.

An adversary that finds no violation elsewhere must find one here.
"""

from countless.core.estimator import Scheme
from countless.lab.arena.negative_controls.allowance import HyzClassical, Thrifty
from countless.lab.arena.negative_controls.disclosure import FreshNoise, Leaking
from countless.lab.arena.negative_controls.offsets import Aligned, Clipping, Unredrawn
from countless.lab.arena.negative_controls.wrong_total import Drifting, Pollster

NEGATIVE_CONTROLS: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (Aligned, Thrifty, Pollster, Clipping, Unredrawn, FreshNoise, Drifting, HyzClassical, Leaking)
}
