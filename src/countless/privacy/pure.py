"""Tight forms for pure partial privacy (proofs: design/proofs/posterior.md).

With delta = 0 the posterior probability of a fact about an unleaked point is within `tanh(epsilon/4)` of its prior,
where the paper has `e^epsilon - 1`. There is no union bound over queries, and the failures of the two steps do not add
up.
"""

from math import exp, log, sqrt, tanh

from countless.errors import InvalidParameter
from countless.privacy.guarantee import PartialDPGuarantee
from countless.privacy.theorems import (
    ANSWER_PRIOR,
    LINEAR,
    POSTERIOR_PRIOR,
    PRODUCT,
    Accuracy,
    GeneralisationBound,
    Sample,
    bound,
    check_failure,
    require_pure,
)


def posterior_shift(epsilon: float) -> float:
    """The most that likelihood ratios within `e^epsilon` can move the probability of an event: `tanh(epsilon/4)`.

    Formal guarantees: for every prior and every event, and equality for the prior `1/(1 + e^(epsilon/2))`.

    >>> round(posterior_shift(0.4), 6)
    0.099668
    """
    if not epsilon >= 0:
        raise InvalidParameter("epsilon", epsilon, "at least 0")
    return tanh(epsilon / 4)


def posterior(prior: float, log_odds: float) -> float:
    """The posterior probability of an event of probability `prior` if its odds grow by `e^log_odds`."""
    if not 0 <= prior <= 1:
        raise InvalidParameter("prior", prior, "between 0 and 1")
    return prior * exp(log_odds) / (prior * exp(log_odds) + 1 - prior)


def _privacy_and_leak(guarantee: PartialDPGuarantee, sample: Sample) -> dict[str, float]:
    leaked = min(guarantee.kappa, sample.active)
    return {
        "privacy": (sample.active - leaked) * posterior_shift(guarantee.epsilon) / sample.m,
        "leak": leaked / sample.m,
    }


def posterior_tight(guarantee: PartialDPGuarantee, sample: Sample) -> GeneralisationBound:
    """The tight posterior lemma: for every transcript and every query, with probability 1.

    The error is `((m_hat - kappa) tanh(epsilon/4) + kappa)/m`: a leaked point may move by 1, the others by
    the shift. The failure is 0.
    """
    require_pure(guarantee, "posterior_tight")
    terms = _privacy_and_leak(guarantee, sample)
    return bound("posterior, tight and pure", POSTERIOR_PRIOR, terms, 0.0, LINEAR, PRODUCT)


def transfer_tight(
    guarantee: PartialDPGuarantee, sample: Sample, accuracy: Accuracy, eta: float
) -> GeneralisationBound:
    """The tight transfer theorem for pure partial privacy.

    The error is `alpha` plus that of `posterior_tight` plus `sqrt(m_hat ln(1/eta)/2)/m`, the failure
    `beta/(1 - eta)`. So eta is no failure probability and may be large, for example 1/2.

    >>> from countless.privacy.guarantee import PartialDPGuarantee
    >>> promise = transfer_tight(PartialDPGuarantee(0.4), Sample(10_000), Accuracy(0.02, 0.01), 0.5)
    >>> round(promise.error, 4), round(promise.failure, 4)
    (0.1256, 0.02)
    """
    require_pure(guarantee, "transfer_tight")
    sampling = sqrt(sample.active * log(1 / check_failure("eta", eta)) / 2) / sample.m
    terms = {"sample error": accuracy.error, **_privacy_and_leak(guarantee, sample), "sampling": sampling}
    return bound("transfer, tight and pure", ANSWER_PRIOR, terms, accuracy.failure / (1 - eta), LINEAR, PRODUCT)


def transfer_exponential(
    guarantee: PartialDPGuarantee, sample: Sample, s: float, log_moment: float, failure: float
) -> GeneralisationBound:
    """The same for a mechanism whose noise has exponential moments, without any sampling term.

    `log_moment` bounds `ln E exp(s |worst sample error|)`, or of the sum over times of such exponentials. The
    error is that of `posterior_tight` plus `(log_moment + ln(1/failure))/s`.
    """
    require_pure(guarantee, "transfer_exponential")
    if not s > 0:
        raise InvalidParameter("s", s, "above 0")
    noise = (log_moment + log(1 / check_failure("failure", failure))) / s
    terms = {"noise": noise, **_privacy_and_leak(guarantee, sample)}
    return bound("transfer, exponential moments", ANSWER_PRIOR, terms, failure, LINEAR, PRODUCT)
