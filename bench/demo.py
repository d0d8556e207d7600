"""What `countless demo` shows, as tables for the docs: errors when traffic reacts, and the messages of a day."""

from collections.abc import Iterator

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, View
from countless_lab.demo.acts import DAY_EVENTS, FEEDBACK, Band, bills, track
from tools.tables import Table

SITES, ALPHA, EVENTS, SEED = 1024, 0.01, 1_000_000, 1
LEFT_OUT = {"a flush every 1 s"}
NAMED = {"countless": "**Countless**", "a message for each event, as INCR": "a message for each event, like INCR"}
NAMES = {"classical": "the classical randomised tracker (HYZ)", "countless": "Countless"}


class Ordinary(Adversary):
    """Bursts at random sites. It reacts to nothing."""

    name = "ordinary"
    must_beat = "hyz"

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            yield Move(rng.randbelow(view.sites), 1 + rng.randbelow(40))


def main() -> Iterator[Table]:
    last: dict[str, list[Band]] = {name: [] for name in NAMES}
    for adversary in (Ordinary(), FEEDBACK):
        *_, bands = track(adversary, SITES, ALPHA, EVENTS, SEED)
        for band in bands:
            last[band.name].append(band)
    rows = [
        [NAMES[name], *(f"{band.worst * ALPHA:.2%}" for band in bands), f"{bands[1].messages:,}"]
        for name, bands in last.items()
    ]
    columns = ("", "worst error, ordinary traffic", "worst error, a rate limiter reads the total", "messages")
    yield Table("demo-reacting", columns, rows)
    bill = next(bill.messages for bill in bills(SEED) if bill.events == DAY_EVENTS)
    rows = [[NAMED.get(name, name), f"{messages:,}"] for name, messages in bill.items() if name not in LEFT_OUT]
    yield Table("demo-day", ("", "messages in a day"), rows)
