"""Moment generating functions of the noise, for tails (proofs: design/proofs/posterior.md).

Integer Laplace noise of scale b has the moment generating function `1/(1 - (sinh(s/2)/sinh(1/(2b)))^2)`,
never more than the `1/(1 - b^2 s^2)` of the continuous law, so every continuous tail holds for it too.
"""

from math import exp, expm1, inf, log, log1p


def log_mgf(s: float, scale: float) -> float:
    """ln E exp(s X) for X integer Laplace of this scale; infinite for |s| >= 1/scale, 0 without noise.

    >>> round(log_mgf(0.1, 5.0), 6), round(-log1p(-(0.1 * 5.0) ** 2), 6)
    (0.28685, 0.287682)
    """
    if scale == 0:
        return 0.0
    if abs(s) * scale >= 1.0:
        return inf
    size = abs(s)
    # sinh(s/2)/sinh(1/(2b)), written so that tiny scales do not overflow
    ratio = exp((size - 1 / scale) / 2) * expm1(-size) / expm1(-1 / scale)
    return -log1p(-ratio * ratio) if ratio < 1.0 else inf


def log_phase_sum(levels: int, log_weight: float, log_node: float) -> float:
    """ln of the sum over j < 2^levels of exp(j log_weight + popcount(j) log_node).

    The sum over binary digits factorises: it is the product over h of `1 + exp(log_node + 2^h log_weight)`.
    """
    return sum(softplus(log_node + log_weight * 2**level) for level in range(levels))


def softplus(x: float) -> float:
    """ln(1 + e^x) without overflow."""
    return x + log1p(exp(-x)) if x > 0 else log1p(exp(x))


def laplace_sum_quantile(scale: float, terms: int, failure: float) -> float:
    """An x with P(|sum of `terms` independent Laplace(scale)| > x) <= failure.

    Formal guarantees: Chernoff, `2 min_s exp(-s x) (1 - b^2 s^2)^(-terms)`; holds for continuous and for
    integer Laplace noise. The minimising s is found by ternary search; every s gives a valid bound, so the
    search need not be exact.

    >>> round(laplace_sum_quantile(1.0, 1, 0.01), 3) >= 4.606  # exact for one term: ln(1/0.01) = 4.605
    True
    """
    if terms == 0 or scale == 0:
        return 0.0

    def at(u: float) -> float:
        return (log(2 / failure) - terms * log1p(-u * u)) * scale / u

    low, high = 1e-6, 1 - 1e-9
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if at(left) < at(right) else (left, high)
    return at((low + high) / 2) * (1 + 1e-12)
