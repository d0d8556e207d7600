"""Who takes part."""

from functools import partial

from race.contestants.base import Contestant
from race.contestants.client import CAN_KEEP, ClientFleet, KeptFleet
from race.contestants.coordinator import CoordinatorBackend
from race.contestants.links import LinkFleet
from race.contestants.otel import OTEL
from race.contestants.prometheus import PROMETHEUS
from race.contestants.redis import DELTAS, INCR
from race.contestants.statsd import STATSD

_TICK = 1.0  # virtual seconds: how often sites look whether a sign of life is due

DETERMINISTIC = Contestant(
    "deterministic", partial(CoordinatorBackend, scheme="deterministic"), LinkFleet, _TICK, ClientFleet
)
COUNTLESS = Contestant("Countless (auto)", partial(CoordinatorBackend, scheme="auto"), LinkFleet, _TICK, ClientFleet)

CONTESTANTS: dict[str, Contestant] = {
    "redis-incr": INCR,
    "redis-deltas": DELTAS,
    "prometheus": PROMETHEUS,
    "otel": OTEL,
    "statsd": STATSD,
    "deterministic": DETERMINISTIC,
    "countless": COUNTLESS,
}

KEPT = Contestant("Countless, state_dir", CoordinatorBackend, KeptFleet, _TICK, stand_in=KeptFleet, heir=KeptFleet)
# Who is killed: the same, and with a state_dir where the client has it.
VICTIMS = CONTESTANTS | ({"countless-state-dir": KEPT} if CAN_KEEP else {})
