"""Sums of the service and the agent: the parts of a counter, and sampled lines of StatsD."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import nextafter

from countless import Tracker
from countless.agent.intake import Intake
from countless.agent.statsd import SCALE
from countless.core.answer import whole
from countless.core.parameters import exact_fraction
from countless.server.http.answers import sums as service
from countless.server.http.api.schemas import PublicAnswer
from countless_lab.tightness.search import Group, Ratios, Row, Run

KINDS = 6
MAX_PARTS = 6
RATES = ("1", "0.5", "0.4", "0.3", "0.24", "0.7", "0.999", "0.0007", "1e-05", "0.333333333333333333")


@dataclass(frozen=True)
class Setting:
    alpha: float
    sites: int


SETTINGS = (Setting(0.25, 1), Setting(0.1, 1), Setting(0.05, 2), Setting(0.3, 3))
ROWS = (
    Row("C86 sum", "C86", "violations: the sum outside its bounds, or further off than alpha and the roundings", True),
    Row("C86 missing", "C86", "violations: a part with its share of the sum is not listed", True),
    Row("C86 listed", "C86", "phi ((1 - alpha)/(1 + alpha))^2 of the sum <= a part that is listed"),
    Row("C44", "C44", "what was counted, less the sum of n/r <= 1/2 + 10^-18 / 2 of the sum of n"),
)


class Counted:
    """A counter of a client, as far as the intake uses it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0

    def add(self, n: int) -> None:
        self.count += n


class Counters:
    """The counters of a client."""

    def __init__(self) -> None:
        self._counters: dict[str, Counted] = {}

    def counter(self, name: str, **windows: object) -> Counted:
        return self._counters.setdefault(name, Counted(name))


class World:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.ratios: Ratios = dict.fromkeys((row.name for row in ROWS), 0.0)
        self.parts: list[Tracker] = []
        self.client = Counters()
        self.intake = Intake(self.client)  # type: ignore[arg-type]
        self.sampled: Counter[str] = Counter()  # the values of all lines, without their rates
        self.exact: dict[str, Fraction] = {}
        self.new_part()

    def new_part(self) -> None:
        setting = self.setting
        tracker = Tracker(sites=setting.sites, alpha=setting.alpha, scheme="deterministic", seed=1)
        self.parts.append(tracker)

    def take(self, kind: int, who: int, amount: int) -> None:
        part = self.parts[who % len(self.parts)]
        match kind:
            case 0 | 1:
                part.site(who % self.setting.sites).add(1 + amount * amount)
            case 2:
                part.site(who % self.setting.sites).add(1 + part.total // (2 + amount))
            case 3 if len(self.parts) < MAX_PARTS:
                self.new_part()
            case 4 | 5:
                self.send(str(who % 3), 1 + amount, RATES[who % len(RATES)], 1 + amount % 3)
                return
        self.check_sums()

    def send(self, number: str, n: int, rate: str, times: int) -> None:
        name = f"c{number}"
        self.intake.datagrams([f"{name}:{n}|c|@{rate}".encode()] * times)
        self.sampled[name] += n * times
        self.exact[name] = self.exact.get(name, Fraction(0)) + n * times / Fraction(rate)
        off = abs(self.client.counter(name).count - self.exact[name])
        self._note("C44", off / (Fraction(1, 2) + Fraction(self.sampled[name], 2 * SCALE)))

    def check_sums(self) -> None:
        alpha = exact_fraction(self.setting.alpha)
        truth = {f"part {number}": part.total for number, part in enumerate(self.parts)}
        total = sum(truth.values())
        answers = [self._answer(name, part) for name, part in zip(truth, self.parts, strict=True)]
        if not total:
            return
        found = service.summed("sum", answers)
        far = alpha * total + Fraction(len(self.parts), 2)
        within = found.lower <= total <= found.upper and abs(found.estimate - total) <= far
        self.ratios["C86 sum"] += not within
        for answer in answers:
            # The largest share for which this part is listed, and a little more.
            share = min(1.0, nextafter(answer.upper / max(1, found.lower), 0.0))
            if share <= 0:
                continue
            listed = {row.counter for row in service.top_answer("sum", answers, share).series}
            asked = exact_fraction(share)
            self.ratios["C86 missing"] += any(n >= asked * total and name not in listed for name, n in truth.items())
            least = asked * ((1 - alpha) / (1 + alpha)) ** 2 * total
            for name in listed:
                self._note("C86 listed", least / truth[name])

    def _answer(self, name: str, part: Tracker) -> PublicAnswer:
        answer = part.answer
        return PublicAnswer(name, *whole(answer.estimate, answer.lower, answer.upper), answer.state, "")

    def _note(self, name: str, ratio: Fraction) -> None:
        self.ratios[name] = max(self.ratios[name], float(ratio))


def play(run: Run) -> Ratios:
    world = World(SETTINGS[run[0]])
    for operation in run[1]:
        world.take(*operation)
    return world.ratios


GROUP = Group(ROWS, len(SETTINGS), KINDS, play)
