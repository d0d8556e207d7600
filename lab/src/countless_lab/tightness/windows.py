"""Windows, spans and rolling counts of a `Tracker`, with a clock that only moves forward."""

from dataclasses import dataclass

from countless import Tracker
from countless_lab.tightness.search import Group, Ratios, Row, Run

KINDS = 8
MINUTE = 60.0
START = 1_763_002_800.0
SPANS = (10, 59, 60, 61, 150)
MAX_SITES = 5


@dataclass(frozen=True)
class Setting:
    alpha: float
    sites: int
    floor: int = 0


SETTINGS = (Setting(0.2, 1), Setting(0.1, 3), Setting(0.25, 2, 40), Setting(0.02, 2))
ROWS = (
    Row("C65", "C65", "violations: the windows do not add up to the total", True),
    Row("C66 spans", "C66", "violations: the events of a span are not between its bounds", True),
    Row("C66 window", "C2, C64", "error of the present window, which is rounded <= alpha max(n, F) + 1/2"),
    Row("C68", "C68", "violations: a closed window that is not exact", True),
)


class World:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.now = START
        self.tracker = Tracker(
            sites=setting.sites,
            alpha=setting.alpha,
            scheme="deterministic",
            floor=setting.floor,
            per="minute",
            clock=lambda: self.now,
            seed=1,
        )
        self.events: list[tuple[float, int]] = []
        self.ratios: Ratios = dict.fromkeys((row.name for row in ROWS), 0.0)

    def take(self, kind: int, who: int, amount: int) -> None:
        tracker = self.tracker
        name = tracker.sites[who % len(tracker.sites)]
        match kind:
            case 0 | 1:
                self.add(name, 1 + amount * amount)
            case 2:
                for each in tracker.sites:
                    self.add(each, 1 + amount)
            case 3:
                self.add(name, 1)
            case 4:
                self.now += 1 + amount
            case 5:  # to just before, or onto, an edge
                self.now += MINUTE - (self.now - START) % MINUTE - amount % 2 * 0.5
            case 6 if amount < 16 and len(tracker.sites) < MAX_SITES:
                tracker.add_site()
            case 7 if amount < 16 and len(tracker.sites) > 1:
                tracker.remove_site(name)
        if who % 2:  # reading closes windows that have ended
            self.check()

    def add(self, name: int | str, n: int) -> None:
        self.events.append((self.now, n))
        self.tracker.site(name).add(n)

    def check(self) -> None:
        tracker, setting, ratios = self.tracker, self.setting, self.ratios
        present = sum(n for moment, n in self.events if moment // MINUTE == self.now // MINUTE)
        window = tracker.window("now")
        ratios["C66 spans"] += not window.lower <= present <= window.upper
        allowed = setting.alpha * max(present, setting.floor) + 0.5
        ratios["C66 window"] = max(ratios["C66 window"], abs(window.estimate - present) / allowed)
        for seconds in SPANS:
            span = tracker.rolling(f"{seconds}s")
            after, since = (
                sum(n for moment, n in self.events if moment > self.now - seconds),
                sum(n for moment, n in self.events if moment >= self.now - seconds),
            )
            ratios["C66 spans"] += not (span.lower <= since and after <= span.upper)
        listed = tracker.windows
        for each in listed:
            true = sum(n for moment, n in self.events if moment // MINUTE == each.start // MINUTE)
            if each.state == "closed":
                ratios["C68"] += not each.lower == each.estimate == each.upper == true
        total = sum(n for _, n in self.events)
        lower, upper = sum(each.lower for each in listed), sum(each.upper for each in listed)
        ratios["C65"] += not (tracker.total == total and lower <= total <= upper)


def play(run: Run) -> Ratios:
    world = World(SETTINGS[run[0]])
    for operation in run[1]:
        world.take(*operation)
    return world.ratios


GROUP = Group(ROWS, len(SETTINGS), KINDS, play)
