"""The strawmen by name: trackers with a known flaw, so that an adversary that finds nothing elsewhere can
prove that it can find something (SPEC 7).
"""

from countless.arena.strawmen.lattices import Aligned, Clipping, Drifting, FreshNoise, Thrifty, Unredrawn
from countless.arena.strawmen.others import HyzClassical, Leaking, Pollster
from countless.core.publisher import Scheme

STRAWMEN: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (Aligned, Thrifty, Pollster, Clipping, Unredrawn, FreshNoise, Drifting, HyzClassical, Leaking)
}
