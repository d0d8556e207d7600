"""How bad the network is: chances of faults, as one in so many ticks or messages (SPEC section 6)."""

from dataclasses import dataclass, replace

NEVER = 0


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """Chances are "one in n"; 0 means never. Times are in ticks; in each tick one site counts a few events."""

    ordered: bool = True  # connections deliver in order until they break; else each message finds its own way
    delay: int = 5  # longest time a message takes
    outage: int = 60  # longest time a site, a connection or the coordinator stays away
    patience: int = 40  # a site not heard of for so long is silent
    lose: int = NEVER  # of single messages
    repeat: int = NEVER
    disconnect: int = NEVER  # one connection breaks, and what is under way on it is lost
    partition: int = NEVER  # many break, and cannot be mended for a while
    crash: int = NEVER  # a site stops
    loses_state: int = NEVER  # of those that stop: comes back without its state
    coordinator_crash: int = NEVER
    join: int = NEVER
    leave: int = NEVER

    @property
    def healed(self) -> "FaultProfile":
        """What comes after the faults: connections that deliver in order, and in time."""
        return FaultProfile(outage=1, patience=10**9)


ROUGH = FaultProfile(disconnect=40, partition=300, crash=100, coordinator_crash=200, join=150, leave=170)

PROFILES: dict[str, FaultProfile] = {
    "delay": FaultProfile(delay=30),
    "disconnections": FaultProfile(disconnect=15),
    "partitions": FaultProfile(partition=80, outage=120),
    "restarts": FaultProfile(coordinator_crash=60, outage=20),
    "crashes": FaultProfile(crash=40),
    "amnesia": FaultProfile(crash=60, loses_state=2),
    "churn": FaultProfile(join=30, leave=25, disconnect=6, outage=20),
    "rough": ROUGH,
    "worst": replace(ROUGH, loses_state=3, delay=30),
    "unordered": FaultProfile(ordered=False, delay=40, lose=10, repeat=10, patience=30),
    "unordered_rough": replace(ROUGH, ordered=False, delay=40, lose=4, repeat=4, leave=NEVER, patience=15),
}
