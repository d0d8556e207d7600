"""What `countless demo` shows, as tables for the README: errors when traffic reacts, and the messages of a day."""

from collections.abc import Iterator

from countless.demo.acts import ACTS, DAY_EVENTS, Band, bills, start_day, track
from tools.tables import Table

SITES, ALPHA, EVENTS, SEED = 1024, 0.01, 1_000_000, 1
NAMES = {"classical": "the classical randomised tracker (HYZ)", "countless": "Countless"}


def main() -> Iterator[Table]:
    last: dict[str, list[Band]] = {name: [] for name in NAMES}
    for adversary in ACTS.values():
        *_, bands = track(adversary, SITES, ALPHA, EVENTS, SEED)
        for band in bands:
            last[band.name].append(band)
    rows = [
        [NAMES[name], *(f"{band.worst * ALPHA:.2%}" for band in bands), f"{bands[1].messages:,}"]
        for name, bands in last.items()
    ]
    columns = ("", "worst error, ordinary traffic", "worst error, a rate limiter reads the total", "messages")
    yield Table("demo-reacting", columns, rows)
    bill = next([*bill.messages.items()] for bill in bills(SEED) if bill.events == DAY_EVENTS)
    world = start_day("deterministic", SEED)  # not in the demo: it takes as long as all acts together
    world.run(DAY_EVENTS)
    bill.insert(-1, ("countless, `deterministic`: certain, and without secrets", world.messages.total))
    yield Table("demo-day", ("", "messages in a day"), [(name, f"{n:,}") for name, n in bill])
