"""The strawmen by name: trackers with a known flaw, so that an adversary that finds nothing elsewhere can
prove that it can find something (SPEC 7).
"""

from countless.core.estimator import Scheme
from countless.lab.arena.negative_controls.lattices import Aligned, Clipping, Drifting, FreshNoise, Thrifty, Unredrawn
from countless.lab.arena.negative_controls.others import HyzClassical, Leaking, Pollster

NEGATIVE_CONTROLS: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (Aligned, Thrifty, Pollster, Clipping, Unredrawn, FreshNoise, Drifting, HyzClassical, Leaking)
}
