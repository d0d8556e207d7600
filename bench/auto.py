"""`auto` against every single scheme in hindsight, from the first event to any total (the bar: 1.1)."""

from math import ceil
from time import process_time

from countless.lab.simulation.competitive import regret
from countless.lab.simulation.registry import independent
from countless.lab.simulation.world import World

ALPHA = 0.01
STREAMS = ("uniform", "zipf", "single", "hot_spots", "bursts", "joining")


def main(
    fleets: tuple[int, ...] = (1, 10, 100, 1_000),
    alpha: float = ALPHA,
    share: int = 10_000,
    streams: tuple[str, ...] = STREAMS[:4],
    seed: int = 1,
) -> None:
    print(f"alpha {alpha:.0%}: messages of auto / best of exact, deterministic, dithered, sampled in hindsight,")
    print(f"at the worst moment, seed {seed}; and the most that auto ever had for each message of exact")
    for sites in fleets:
        for stream in streams:
            start, events = process_time(), share * sites
            found = regret(stream, sites, events, alpha=alpha, seed=seed)
            at_end = ", ".join(f"{name} {count:,}" for name, count in found.messages.items())
            print(
                f"{sites:>7,} sites, {stream:9} worst {found.ratio:.3f} of {found.best} at {found.events:,}; "
                f"of exact {found.of_exact:.3f}; after {events:,}: {at_end} [{process_time() - start:.0f} s]",
                flush=True,
            )


def large() -> None:
    """Takes half an hour. The worst moments are early: 30 events for each site show them."""
    for alpha in (0.01, 0.02, 0.05, 0.1):
        main((10_000, 30_000, 100_000), alpha, share=30, streams=("uniform", "zipf"))


def coarse() -> None:
    """A coarse answer: sites fall silent after a few events, and a synchronisation is dear beside them."""
    for alpha, share in ((0.01, 100), (0.02, 150), (0.05, 300), (0.1, 300)):
        main((100, 300, 1_000, 3_000), alpha, share, STREAMS)


def seeds() -> None:
    """Seeds on which nothing was tuned."""
    for seed in (2, 3):
        for alpha, share in ((0.01, 100), (0.02, 150), (0.05, 300), (0.1, 300)):
            main((100, 300, 1_000), alpha, share, STREAMS[:2] + STREAMS[3:5], seed)


def possible() -> None:
    """No counter can be nearer to the best scheme than this, whoever it tells and when (docs/theory/telling.md)."""
    for alpha in (0.01, 0.02, 0.05, 0.1):
        for sites in (1_000, 10_000, 100_000):
            loud = ceil((1 - alpha) / (2 * alpha))
            print(
                f"alpha {alpha:.0%}, {sites:>7,} sites: {(1 - 0.5**loud) * sites / _best(sites, alpha):.3f}", flush=True
            )


def _best(sites: int, alpha: float, share: int = 8) -> float:
    """Messages of the best single scheme when the events stop, each with the same probability: `sites` are expected."""
    rivals = ("deterministic", "dithered", "sampled")
    worlds = [World(rival, range(sites), alpha=alpha, delta=0.05, seed=1) for rival in rivals]
    mean, going_on, stop = 0.0, 1.0, 1 / (sites + 1)
    for number, site in enumerate(independent(sites, share * sites, seed=1), 1):
        going_on *= 1 - stop
        for world in worlds:
            world.add(site)
        best = min(number, *(world.messages.total for world in worlds))
        mean += stop * going_on * best
    return mean + going_on * (1 - stop) * (best + sites + 1)  # from then on at most one message for each event
