"""`auto` against every single scheme in hindsight, from the first event to any total (the bar: 1.1)."""

from time import process_time

from countless.simulation.hindsight import regret

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
