"""`auto` against every single scheme in hindsight, from the first event to any total (the bar: 1.1)."""

from time import process_time

from countless.simulation.hindsight import regret

ALPHA = 0.01


def main(fleets: tuple[int, ...] = (1, 10, 100, 1_000), alpha: float = ALPHA, share: int = 10_000) -> None:
    print(f"alpha {alpha:.0%}: messages of auto / best of exact, deterministic, dithered, sampled in hindsight,")
    print("at the worst moment; and the most messages an event that auto ever had (exact: 1)")
    for sites in fleets:
        for stream in ("uniform", "zipf", "single", "hot_spots"):
            start, events = process_time(), share * sites
            found = regret(stream, sites, events, alpha=alpha)
            at_end = ", ".join(f"{name} {count:,}" for name, count in found.messages.items())
            print(
                f"{sites:>7,} sites, {stream:9} worst {found.ratio:.3f} of {found.best} at {found.events:,}; "
                f"of exact {found.of_exact:.3f}; after {events:,}: {at_end} [{process_time() - start:.0f} s]",
                flush=True,
            )


def large() -> None:
    """Takes half an hour. The worst moments are early: 60 events for each site show them."""
    main((3_000, 10_000, 30_000, 100_000), share=60)


def coarse() -> None:
    """A coarse answer: sites fall silent after a few events, and a synchronisation is dear beside them."""
    for alpha in (0.05, 0.1):
        main((100, 300, 1_000, 3_000), alpha, share=200)
