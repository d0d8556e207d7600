"""Small rounds for black-box audits: fixed events, and two vectors of thresholds that differ in one block."""

from dataclasses import dataclass

from countless.privacy.thresholds import PhasedShape
from countless_lab.audit.transcripts import Block

STEP = 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """Site 0 crosses at the event `place` of its block, or at `other`, or not at all; all others cross at each event.

    `block_events` are the numbers of the events of the block, from 1.
    """

    name: str
    events: tuple[int, ...]
    block_events: tuple[int, ...]
    place: int
    other: int
    step: int = STEP
    block: Block = (0, 1)

    def thresholds(self, place: int) -> dict[Block, int]:
        blocks = {(site, 1 + index) for site in self.events for index in range(STEP)}
        return dict.fromkeys(blocks, 1) | {self.block: place}


def scenarios(shape: PhasedShape) -> tuple[Scenario, ...]:
    """The crossing moves between every two phases, or out of sight from every phase; in both directions.

    >>> [scenario.name for scenario in scenarios(PhasedShape(2, 3, 1, 1, 1))][::2]
    ['phase 1 to 2', 'phase 1 to never', 'phase 2 to never']
    """
    made = []
    length = shape.phases * (shape.threshold + 2) + 4
    for first in range(shape.phases):
        for second in (*range(first + 1, shape.phases), None):
            # About where the phases begin; noise moves the phases, not the events.
            places = [1 + phase * shape.threshold for phase in (first, second) if phase is not None]
            events = tuple(0 if number in places else number for number in range(1, length + 1))
            name = f"phase {first + 1} to {'never' if second is None else second + 1}"
            for direction, place, other in (("", 1, 2), (", backwards", 2, 1)):
                made.append(Scenario(name + direction, events, tuple(places), place, other))
    return tuple(made)
