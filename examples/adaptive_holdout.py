"""An adaptive analyst overfits a holdout through a leaky service, and which theorem still bounds the damage.

A service answers questions "what share of the holdout satisfies ...?" with noise, and lets the analyst open
some records: a debugging view, a support ticket, a leaderboard that shows the worst cases. An opened record
has no privacy at all, so no (epsilon, delta) of ordinary differential privacy describes the service, and a
bound that forgets the opened records is simply false. Partial differential privacy does describe it:
epsilon for the noisy answers, kappa for the opened records, whichever the analyst chose to open.

The data are pure chance: labels independent of features, so every predictor is right one time in ten. The
analyst asks for the correlation of each feature with a label, opens records, and then submits one predictor:
look up the opened records, vote by the signs of the correlations elsewhere. Its reported accuracy minus one
tenth is the generalisation error, which the theorem must cover.

    python examples/adaptive_holdout.py --html holdout.html
    python examples/adaptive_holdout.py --audit
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from countless.core.random_source import RandomSource
from countless.privacy import (
    Accuracy,
    Adversary,
    AuditResult,
    GeneralisationBound,
    LeakMap,
    PartialDPGuarantee,
    RandomSourceNoise,
    Sample,
    asking,
    audit,
    transfer_pure,
    transfer_tight,
)
from countless.privacy.tails import laplace_sum_quantile
from countless.randomness import SeededRandom

CLASSES = 10
OPENED = LeakMap("the records the analyst opened", lambda opened: frozenset(opened))
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Setting:
    """One experiment: the size of the holdout, the questions, epsilon for all of them, the share opened."""

    records: int = 20_000
    features: int = 40
    epsilon: float = 0.4
    opened_share: float = 0.0
    failure: float = 0.05

    @property
    def opened(self) -> int:
        """kappa."""
        return int(self.opened_share * self.records)

    @property
    def scale(self) -> Fraction:
        """Noise on each count: one record moves each of them by 1, and together they may cost epsilon."""
        return (self.features + 1) / Fraction(self.epsilon)


class Service:
    """Answers counting questions with exact integer noise, opens records, remembers which."""

    def __init__(self, features: Bits, labels: npt.NDArray[np.int64], scale: Fraction, rng: RandomSource) -> None:
        self._features, self._labels = features, labels
        self._scale, self._noise = scale, RandomSourceNoise(rng)
        self.opened: set[int] = set()

    def share(self, satisfied: Bits) -> float:
        """The noisy share of records for which a fixed rule says yes."""
        return (int(satisfied.sum()) + self._noise.laplace(self._scale)) / len(self._labels)

    def accuracy(self, predictor: "Predictor") -> float:
        """The noisy accuracy of a predictor: a linear query like any other."""
        return self.share(predictor.predict(self._features) == self._labels)

    def agreement(self, feature: int, label: int) -> float:
        """The noisy share of records where `feature` says yes exactly if the label is `label`."""
        return self.share(self._features[:, feature] == (self._labels == label))

    def open(self, record: int) -> tuple[bytes, int]:
        """One record in the clear: its features and its label."""
        self.opened.add(record)
        return self._features[record].tobytes(), int(self._labels[record])


@dataclass(frozen=True)
class Predictor:
    """Look-up in the opened records; elsewhere the features vote, each for the label it was asked about."""

    table: dict[bytes, int]
    signs: npt.NDArray[np.float64]

    def predict(self, features: Bits) -> npt.NDArray[np.int64]:
        """A label for each record."""
        votes = np.zeros((len(features), CLASSES))
        for feature, sign in enumerate(self.signs):
            votes[:, feature % CLASSES] += sign * (features[:, feature] - 0.5)
        labels: npt.NDArray[np.int64] = votes.argmax(axis=1)
        if self.table:
            for index, row in enumerate(features):
                labels[index] = self.table.get(row.tobytes(), labels[index])
        return labels


@dataclass(frozen=True)
class Outcome:
    """What was measured, and what three theorems say about it."""

    setting: Setting
    reported: float
    measured_error: float
    partial_bound: float
    paper_bound: float
    ordinary_bound: float
    failure: float


def analyst(service: Service, setting: Setting) -> tuple[Predictor, float]:
    """Ask about each feature, open records, submit the predictor that exploits both."""
    chance = 1 / CLASSES * 0.5 + (1 - 1 / CLASSES) * 0.5
    signs = np.array([1.0 if service.agreement(j, j % CLASSES) > chance else -1.0 for j in range(setting.features)])
    table = dict(service.open(record) for record in range(setting.opened))
    predictor = Predictor(table, signs)
    return predictor, service.accuracy(predictor)


def bounds(setting: Setting) -> tuple[GeneralisationBound, GeneralisationBound, GeneralisationBound]:
    """The tight partial bound, the paper's pure theorem, and the tight bound that forgets what was opened."""
    sample, half = Sample(setting.records), setting.failure / 2
    # All answers are within this of the sample's, except with probability half: union over the questions.
    error = laplace_sum_quantile(float(setting.scale), 1, half / (setting.features + 1)) / setting.records
    accuracy = Accuracy(error, half)
    partial = PartialDPGuarantee(setting.epsilon, 0.0, setting.opened, OPENED)
    ordinary = PartialDPGuarantee(setting.epsilon)
    return (
        transfer_tight(partial, sample, accuracy, 0.5),
        transfer_pure(partial, sample, accuracy, half),
        transfer_tight(ordinary, sample, accuracy, 0.5),
    )


def experiment(setting: Setting, seed: int) -> Outcome:
    """One holdout, one analyst, one measured generalisation error of the final answer."""
    draw = np.random.default_rng(seed)
    features = draw.random((setting.records, setting.features)) < 0.5
    labels = draw.integers(CLASSES, size=setting.records)
    service = Service(features, labels, setting.scale, SeededRandom(seed).spawn("noise"))
    _, reported = analyst(service, setting)
    tight, paper, ordinary = bounds(setting)
    # Labels are independent of features, so outside the holdout every predictor is right one time in ten.
    error = abs(reported - 1 / CLASSES)
    return Outcome(setting, reported, error, tight.error, paper.error, ordinary.error, tight.failure)


def sweep(shares: Sequence[float], repeats: int, setting: Setting, seed: int) -> list[Outcome]:
    """The worst of `repeats` experiments for each share of opened records."""
    worst = []
    for share in shares:
        chosen = Setting(setting.records, setting.features, setting.epsilon, share, setting.failure)
        first = seed + 1000 * round(100 * share)
        runs = [experiment(chosen, first + repeat) for repeat in range(repeats)]
        worst.append(max(runs, key=lambda outcome: outcome.measured_error))
    return worst


def served(data: tuple[tuple[bytes, int], ...], adversary: Adversary, rng: RandomSource) -> tuple[object, ...]:
    """The service as a mechanism: it answers one question about a feature, and opens records."""
    features = np.array([np.frombuffer(row, dtype=np.bool_) for row, _ in data])
    labels = np.array([label for _, label in data])
    service = Service(features, labels, Fraction(2), rng)
    answers: tuple[object, ...] = ()
    while (question := adversary(answers)) is not None:
        kind, *rest = question
        answers += (service.open(*rest) if kind == "open" else round(service.agreement(*rest) * len(data)),)
    return (*sorted(service.opened),), answers


def audits(plays: int, seed: int) -> dict[str, AuditResult]:
    """The claim with the opened records, and one without them, of a service with epsilon 1/2 for its one answer."""
    data = tuple((bytes([number % 2]), number % CLASSES) for number in range(20))
    changed = (bytes([0]), 1)  # another label for record 0: it disagrees with the feature now
    leak_map = LeakMap("the records the analyst opened", lambda transcript: frozenset(transcript[0]))
    claims = {"partial": PartialDPGuarantee(0.5, 0.0, 2, leak_map), "ordinary": PartialDPGuarantee(0.5)}
    questions = asking([("agreement", 0, 1), ("open", 0), ("open", 7)])
    asked = asking([("agreement", 0, 1), ("open", 7)])
    found = {}
    for name, claim in claims.items():
        found[f"{name}, record opened"] = audit(served, claim, data, 0, changed, questions, plays, SeededRandom(seed))
        found[f"{name}, record not opened"] = audit(served, claim, data, 0, changed, asked, plays, SeededRandom(seed))
    return found


def table(outcomes: Sequence[Outcome]) -> str:
    """The results as text."""
    head = f"{'opened':>8} {'reported':>9} {'measured':>9} {'partial':>9} {'paper':>9} {'ordinary':>9}  holds?"
    lines = [head]
    for one in outcomes:
        kept = "partial yes, ordinary " + ("yes" if one.measured_error <= one.ordinary_bound else "NO")
        if one.measured_error > one.partial_bound:
            kept = "partial NO"
        lines.append(
            f"{one.setting.opened_share:8.0%} {one.reported:9.3f} {one.measured_error:9.3f} "
            f"{one.partial_bound:9.3f} {one.paper_bound:9.3f} {one.ordinary_bound:9.3f}  {kept}"
        )
    return "\n".join(lines)


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Measured error and the three bounds against the share of opened records, as one self-contained page."""
    import plotly.graph_objects as go

    x = [one.setting.opened_share for one in outcomes]
    figure = go.Figure()
    for name, values, dash in (
        ("measured (worst run)", [one.measured_error for one in outcomes], "solid"),
        ("bound: partial, tight", [one.partial_bound for one in outcomes], "dash"),
        ("bound: partial, as in the paper", [one.paper_bound for one in outcomes], "dot"),
        ("bound that forgets the leak (false)", [one.ordinary_bound for one in outcomes], "dashdot"),
    ):
        figure.add_scatter(x=x, y=values, name=name, mode="lines+markers", line={"dash": dash})
    figure.update_layout(
        title="What opening records does to a holdout",
        xaxis={"title": "share of the holdout opened", "tickformat": ".0%"},
        yaxis={"title": "generalisation error of the last answer", "rangemode": "tozero"},
    )
    figure.write_html(str(path), include_plotlyjs=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep, print the table, write the plot if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=0.4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--html", type=Path, help="write the plot here")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--audit", action="store_true", help="audit the claims about the service instead")
    given = parser.parse_args(arguments)
    if given.audit:
        for name, found in audits(2000, given.seed).items():
            print(f"{name}: {'rejected' if found.violated else 'no violation found'}; {found.witness}")
        return 0
    setting = Setting(given.records, given.features, given.epsilon)
    outcomes = sweep((0.0, 0.05, 0.1, 0.2, 0.4, 0.6), given.repeats, setting, given.seed)
    print(json.dumps([asdict(one) for one in outcomes], indent=2) if given.json else table(outcomes))
    if given.html is not None:
        plot(outcomes, given.html)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
