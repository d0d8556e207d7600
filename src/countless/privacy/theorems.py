"""Every theorem and lemma of the paper on partial privacy, as a function that returns its bound.

A mechanism that is accurate on the sample, and partially private in it, is accurate on the distribution the
sample came from. Two steps: an accurate answer is also close to the query's mean under the *posterior* of the
sample given the transcript (resampling), and that posterior is close to the prior (privacy). The slacks of
the two steps, which the paper calls c and d in changing roles, have fixed names here: `sample_slack` and
`posterior_slack`. `Sample` holds what is known about the queries.

design/proofs/partial-dp.md has a table of the errors and failures, and of the corrections to the paper with their
reasons. Tight pure forms are in `countless.privacy.pure`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import expm1, isfinite, log, sqrt

from countless.core.parameters import require_integer
from countless.errors import InvalidParameter
from countless.privacy.guarantee import PartialDPGuarantee

IN_RANGE = "every answer lies in the range of its query, given the points the query does not depend on"
PRODUCT = "the m points are independent; the analyst may be any adaptive one"
LINEAR = "every query is linear: the mean of m functions of one point each, with values in [0, 1]"


@dataclass(frozen=True, slots=True)
class Sample:
    """Size `m` of the sample, and on how many of its points, `m_hat`, a query may depend (all if absent)."""

    m: int
    m_hat: int | None = None

    def __post_init__(self) -> None:
        require_integer("m", self.m, 1)
        if self.m_hat is not None and not 1 <= self.m_hat <= self.m:
            raise InvalidParameter("m_hat", self.m_hat, f"between 1 and m = {self.m}")

    @property
    def active(self) -> int:
        """On how many points a query may depend."""
        return self.m if self.m_hat is None else self.m_hat


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Sample accuracy: except with probability `failure`, all answers are within `error` of the sample's."""

    error: float
    failure: float

    def __post_init__(self) -> None:
        if not (isfinite(self.error) and self.error >= 0):
            raise InvalidParameter("error", self.error, "finite and at least 0")
        if not 0 <= self.failure <= 1:
            raise InvalidParameter("failure", self.failure, "between 0 and 1")


@dataclass(frozen=True, slots=True)
class GeneralisationBound:
    """The statement of a theorem: `P(max over t of the distance > error) <= failure`, under the assumptions.

    `distance` names the two quantities compared; the error is the sum of `terms`.
    """

    theorem: str
    distance: str
    error: float
    failure: float
    terms: Mapping[str, float]
    assumptions: tuple[str, ...]


def bound(
    theorem: str, distance: str, terms: dict[str, float], failure: float, *assumptions: str
) -> GeneralisationBound:
    return GeneralisationBound(theorem, distance, sum(terms.values()), min(1.0, failure), terms, assumptions)


ANSWER_POSTERIOR = "answer - query under the posterior"
POSTERIOR_PRIOR = "query under the posterior - query under the distribution"
ANSWER_PRIOR = "answer - query under the distribution"


def ratio_or_zero(probability: float, slack: float, name: str) -> float:
    """probability/slack, where a probability of 0 allows a slack of 0."""
    if not (isfinite(slack) and slack >= 0) or (slack == 0 and probability > 0):
        raise InvalidParameter(name, slack, "above 0 (0 only where the probability it divides is 0)")
    return 0.0 if probability == 0 else probability / slack


def resampling(sample: Sample, accuracy: Accuracy, sample_slack: float) -> GeneralisationBound:
    """Lemma "sample_acc" (Jung et al. 2020) and its variant for queries on m_hat points.

    >>> resampling(Sample(1000), Accuracy(0.01, 1e-6), 0.001).failure
    0.001
    """
    share = sample.active / sample.m
    terms = {"sample error": accuracy.error, "sample slack": share * sample_slack}
    failure = ratio_or_zero(accuracy.failure, sample_slack, "sample_slack")
    return bound("resampling (lemma sample_acc)", ANSWER_POSTERIOR, terms, failure, LINEAR, IN_RANGE, PRODUCT)


def posterior_linear(
    guarantee: PartialDPGuarantee, sample: Sample, posterior_slack: float = 0.0
) -> GeneralisationBound:
    """Lemma "trans_linear", and "rdp_post_sim_m_hat" if m_hat is given."""
    terms = {
        "privacy": sample.active / sample.m * expm1(guarantee.epsilon),
        "leak": min(guarantee.kappa, sample.active) / sample.m,
        "posterior slack": 2 * posterior_slack,
    }
    failure = ratio_or_zero(guarantee.delta, posterior_slack, "posterior_slack")
    return bound("posterior, linear (lemma trans_linear)", POSTERIOR_PRIOR, terms, failure, LINEAR, PRODUCT)


def transfer_linear(
    guarantee: PartialDPGuarantee, sample: Sample, accuracy: Accuracy, sample_slack: float, posterior_slack: float = 0.0
) -> GeneralisationBound:
    """Theorem "transfer_linear", and "transfer_linear_m_hat" if m_hat is given: the two lemmas together.

    >>> from countless.privacy.guarantee import PartialDPGuarantee, LeakMap
    >>> tracker = PartialDPGuarantee(0.1, 0.0, 32, LeakMap("blocks that ended a phase", frozenset))
    >>> promise = transfer_linear(tracker, Sample(1_000_000, 1000), Accuracy(0.001, 1e-8), 1e-3)
    >>> round(promise.error, 6), promise.failure
    (0.001138, 1e-05)
    """
    return _chain(
        "transfer (theorem transfer_linear)",
        resampling(sample, accuracy, sample_slack),
        posterior_linear(guarantee, sample, posterior_slack),
    )


def _chain(theorem: str, first: GeneralisationBound, second: GeneralisationBound) -> GeneralisationBound:
    assumptions = dict.fromkeys(first.assumptions + second.assumptions)
    terms = {**first.terms, **second.terms}
    return bound(theorem, ANSWER_PRIOR, terms, first.failure + second.failure, *assumptions)


def low_sensitivity(sensitivity: float) -> str:
    """The assumption on the queries of the next two theorems."""
    return f"changing one point moves no query by more than {sensitivity:g}"


def posterior_low_sensitivity(
    guarantee: PartialDPGuarantee, sample: Sample, sensitivity: float, posterior_slack: float = 0.0
) -> GeneralisationBound:
    """Lemma "cond_low_sensitivity"."""
    if not (isfinite(sensitivity) and sensitivity >= 0):
        raise InvalidParameter("sensitivity", sensitivity, "finite and at least 0")
    terms = {
        "privacy": expm1(guarantee.epsilon) * sample.active * sensitivity,
        "leak": min(guarantee.kappa, sample.active) * sensitivity,
        "posterior slack": 4 * posterior_slack * sample.active * sensitivity,
    }
    failure = sample.m / sample.active * ratio_or_zero(guarantee.delta, posterior_slack, "posterior_slack")
    name = "posterior, low sensitivity (lemma cond_low_sensitivity)"
    return bound(name, POSTERIOR_PRIOR, terms, failure, low_sensitivity(sensitivity), PRODUCT)


def transfer_low_sensitivity(
    guarantee: PartialDPGuarantee,
    sample: Sample,
    sensitivity: float,
    accuracy: Accuracy,
    sample_slack: float,
    posterior_slack: float = 0.0,
    query_range: float = 1.0,
) -> GeneralisationBound:
    """Theorem "transfer_low_sensitivity". The paper has no `query_range`; it assumes 1."""
    if not (isfinite(query_range) and query_range > 0):
        raise InvalidParameter("query_range", query_range, "finite and above 0")
    posterior = posterior_low_sensitivity(guarantee, sample, sensitivity, posterior_slack)
    failure = query_range * ratio_or_zero(accuracy.failure, sample_slack, "sample_slack")
    terms = {"sample error": accuracy.error, "sample slack": sample_slack}
    within = f"no answer is further than {query_range:g} from its query on any sample"
    resampled = bound("resampling, bounded range", ANSWER_POSTERIOR, terms, failure, within, PRODUCT)
    return _chain("transfer, low sensitivity (theorem transfer_low_sensitivity)", resampled, posterior)


def require_pure(guarantee: PartialDPGuarantee, theorem: str) -> None:
    """Raise if delta is above 0: the theorem needs likelihood ratios of single transcripts."""
    if not guarantee.pure:
        raise InvalidParameter("delta", guarantee.delta, f"0 for {theorem}")


def check_failure(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise InvalidParameter(name, value, "between 0 and 1, both excluded")
    return value


def posterior_pure(guarantee: PartialDPGuarantee, sample: Sample, eta: float) -> GeneralisationBound:
    """Lemma "cond_pure_dp" as the paper proves it: for *every* transcript, under the posterior of the sample."""
    require_pure(guarantee, "posterior_pure")
    terms = {
        "privacy": sample.active / sample.m * expm1(guarantee.epsilon),
        "leak": min(guarantee.kappa, sample.active) / sample.m,
        "sampling": sqrt(2 * sample.active * log(2 / check_failure("eta", eta))) / sample.m,
    }
    name = "posterior sample, pure (lemma cond_pure_dp)"
    return bound(name, "query on a sample from the posterior - under the distribution", terms, eta, LINEAR, PRODUCT)


def transfer_pure(guarantee: PartialDPGuarantee, sample: Sample, accuracy: Accuracy, eta: float) -> GeneralisationBound:
    """Theorem "transfer_pure_dp", and "transfer_pure_dp_mhat" if m_hat is given."""
    posterior = posterior_pure(guarantee, sample, eta)
    terms = {"sample error": accuracy.error, **posterior.terms}
    name = "transfer, pure (theorem transfer_pure_dp)"
    return bound(name, ANSWER_PRIOR, terms, accuracy.failure + eta, LINEAR, PRODUCT)
