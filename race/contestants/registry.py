"""The contestants by name."""

from functools import partial

from race.contestants.base import Contestant
from race.contestants.client import ClientFleet, DurableFleet
from race.contestants.coordinator import CoordinatorBackend
from race.contestants.links import LinkFleet
from race.contestants.otel import OTEL
from race.contestants.prometheus import PROMETHEUS
from race.contestants.redis import DELTAS, INCR
from race.contestants.statsd import STATSD

_TICK_S = 1.0  # virtual time between checks for due heartbeats

DETERMINISTIC = Contestant(
    "deterministic", partial(CoordinatorBackend, scheme="deterministic"), LinkFleet, _TICK_S, ClientFleet
)
COUNTLESS = Contestant("Countless (auto)", partial(CoordinatorBackend, scheme="auto"), LinkFleet, _TICK_S, ClientFleet)

CONTESTANTS: dict[str, Contestant] = {
    "redis-incr": INCR,
    "redis-deltas": DELTAS,
    "prometheus": PROMETHEUS,
    "otel": OTEL,
    "statsd": STATSD,
    "deterministic": DETERMINISTIC,
    "countless": COUNTLESS,
}

DURABLE = Contestant(
    "Countless, state_dir",
    CoordinatorBackend,
    DurableFleet,
    _TICK_S,
    restart_fleet=DurableFleet,
    recovery_fleet=DurableFleet,
)
# Processes of these are killed: the same, and Countless with a state_dir.
KILLED = CONTESTANTS | {"countless-state-dir": DURABLE}
