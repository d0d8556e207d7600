"""How bad the network is: chances of faults, as one in so many ticks or messages (SPEC section 6)."""

from dataclasses import dataclass, replace

NEVER = 0


@dataclass(frozen=True, slots=True)
class Weather:
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
    amnesia: int = NEVER  # of those that stop: comes back without its state
    coordinator_crash: int = NEVER
    join: int = NEVER
    leave: int = NEVER

    @property
    def calm(self) -> "Weather":
        """What comes after the faults: connections that deliver in order, and in time."""
        return Weather(outage=1, patience=10**9)


ROUGH = Weather(disconnect=40, partition=300, crash=100, coordinator_crash=200, join=150, leave=170)

WEATHERS: dict[str, Weather] = {
    "delay": Weather(delay=30),
    "disconnections": Weather(disconnect=15),
    "partitions": Weather(partition=80, outage=120),
    "restarts": Weather(coordinator_crash=60, outage=20),
    "crashes": Weather(crash=40),
    "amnesia": Weather(crash=60, amnesia=2),
    "churn": Weather(join=30, leave=25, disconnect=6, outage=20),
    "rough": ROUGH,
    "worst": replace(ROUGH, amnesia=3, delay=30),
    "unordered": Weather(ordered=False, delay=40, lose=10, repeat=10, patience=30),
    "unordered_rough": replace(ROUGH, ordered=False, delay=40, lose=4, repeat=4, leave=NEVER, patience=15),
}
