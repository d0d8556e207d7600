"""The paper's headline, measured: messages grow as sqrt(k), 1/alpha and log N, and as k for `deterministic`.

One pinned seed for each point: dice hardly move a message count, which is an average over thousands of
reports (its standard deviation is below 1 % here), so the tolerances are about the slopes themselves. They
are not exactly 1/2 and -1: the bounds carry logarithms, and a round's synchronisation costs 2k. Tolerances
are stated in each test; docs/arena.md has the figures.
"""

from math import log

import pytest

from countless.lab.arena.scaling import line, messages_at, messages_per_efold, power

ROBUST = ("sampled", "dithered")


def test_a_line_is_found() -> None:
    fit = line([0, 1, 2], [1, 3, 5])
    assert (fit.slope, fit.intercept, fit.explained) == (2, 1, 1)
    assert power([1, 2, 4], [3, 12, 48]).slope == pytest.approx(2)
    assert line([0, 1], [4, 4]).explained == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "slope", "tolerance"),
    [("sampled", 0.5, 0.15), ("dithered", 0.5, 0.15), ("auto", 0.5, 0.15), ("deterministic", 1, 0.05)],
)
def test_sites(scheme: str, slope: float, tolerance: float) -> None:
    sites = (256, 1024, 2048)  # k <= 1/alpha^2, as in the paper
    fit = power(sites, [messages_per_efold(scheme, k, 0.01) for k in sites])
    assert abs(fit.slope - slope) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "slack"), [("sampled", 0.15), ("dithered", 0.15), ("deterministic", 0.05)])
def test_alpha(scheme: str, slack: float) -> None:
    alphas = (0.005, 0.01, 0.02)
    slope = power(alphas, [messages_per_efold(scheme, 256, alpha) for alpha in alphas]).slope
    assert abs(slope + 1) < slack


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [*ROBUST, "deterministic", "auto", "partial_dp"])
def test_total(scheme: str) -> None:
    totals = [10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8]
    messages = messages_at(scheme, 512, 0.05, totals)
    fit = line([log(total) for total in totals], messages)
    assert fit.explained > 0.995
    # ... and, as log N says, far from growing with N itself:
    assert messages[-1] < 4 * messages[0]


@pytest.mark.slow
def test_the_papers_own_scheme_where_its_noise_pays() -> None:
    sites = (1024, 2048, 4096)
    assert 0.5 < power(sites, [messages_per_efold("partial_dp", k, 0.05) for k in sites]).slope < 0.75
