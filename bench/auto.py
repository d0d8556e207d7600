"""`auto` against every single scheme in hindsight, from the first event to any total (bars: 1.1, and exact)."""

from time import process_time

from countless.simulation.hindsight import regret

ALPHA = 0.01


def main(fleets: tuple[int, ...] = (1, 10, 100, 1_000)) -> None:
    print("messages of auto / best of exact, deterministic, dithered, sampled in hindsight, at the worst moment;")
    print("settled: the same with one message a site allowed for telling it its pace")
    for sites in fleets:
        for stream in ("uniform", "zipf", "single", "hot_spots"):
            start = process_time()
            found = regret(stream, sites, 10_000 * sites, alpha=ALPHA)
            at_end = ", ".join(f"{name} {count:,}" for name, count in found.messages.items())
            print(
                f"{sites:>7,} sites, {stream:9} worst {found.ratio:.3f} of {found.best} at {found.events:,}; "
                f"settled {found.settled:.3f}; beyond exact {found.over_exact:.2f} a site; "
                f"after {10_000 * sites:,}: {at_end} "
                f"[{process_time() - start:.0f} s]",
                flush=True,
            )


def large() -> None:
    """Takes a quarter of an hour."""
    main((10_000, 100_000))
