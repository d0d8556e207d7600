"""Fault profiles of the faulty world: how often each fault happens, as one in so many ticks or messages."""

from dataclasses import dataclass, replace

NEVER = 0


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """Frequencies are "one in n", 0 means never. Times are in ticks; in each tick one site counts a few events."""

    ordered: bool = True  # connections deliver in order until they break; else messages overtake each other
    delay: int = 5  # longest time a message takes
    outage: int = 60  # longest time a site, a connection or the coordinator is unavailable
    timeout: int = 40  # a site without messages for so long is marked unreachable
    lose: int = NEVER  # of single messages
    repeat: int = NEVER
    disconnect: int = NEVER  # one connection breaks and loses what is in flight on it
    partition: int = NEVER  # half of the connections break and cannot be reopened for a while
    crash: int = NEVER  # a site stops
    loses_state: int = NEVER  # of the sites that stop: restarts without its state, as a new incarnation
    coordinator_crash: int = NEVER
    join: int = NEVER
    leave: int = NEVER

    @property
    def healed(self) -> "FaultProfile":
        """No more faults: connections deliver in order and in time, and no timeout expires."""
        return FaultProfile(outage=1, timeout=10**9)


ROUGH = FaultProfile(disconnect=40, partition=300, crash=100, coordinator_crash=200, join=150, leave=170)

PROFILES: dict[str, FaultProfile] = {
    "delay": FaultProfile(delay=30),
    "disconnections": FaultProfile(disconnect=15),
    "partitions": FaultProfile(partition=80, outage=120),
    "restarts": FaultProfile(coordinator_crash=60, outage=20),
    "crashes": FaultProfile(crash=40),
    "state_loss": FaultProfile(crash=60, loses_state=2),
    "churn": FaultProfile(join=30, leave=25, disconnect=6, outage=20),
    "rough": ROUGH,
    "worst": replace(ROUGH, loses_state=3, delay=30),
    "unordered": FaultProfile(ordered=False, delay=40, lose=10, repeat=10, timeout=30),
    "unordered_rough": replace(ROUGH, ordered=False, delay=40, lose=4, repeat=4, leave=NEVER, timeout=15),
}
