"""The paper's constant, and its main theorem with every constant stated (proofs: design/proofs/partial-dp.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log, log1p, log2, sqrt

from countless.core.parameters import require_integer, require_probability
from countless.planning.partial_dp.proven import reports_quantile
from countless.planning.plan import check_request


def paper_constant(sites: int, eta: float) -> float:
    """The paper's C, with beta = eta/sqrt(k): base 2 where trees are counted, natural where tails are."""
    return sqrt((log2(sqrt(sites)) ** 1.5 + 1) * (log(8 * sites) - log(eta)))


@dataclass(frozen=True, slots=True)
class MessageBound:
    """With probability at least 1 - delta every answer is within 1 ± alpha, and at most `messages` are sent.

    `messages` is the sum of `terms`. `order` is what stands inside the O(...) of the paper. At most `rounds` rounds
    start, each planned for the failure probability `eta`.
    """

    theorem: str
    messages: float
    terms: Mapping[str, float]
    order: float
    C: float
    rounds: int
    eta: float
    delta: float
    assumptions: tuple[str, ...]


def theorem_1(sites: int, alpha: float, total: int, delta: float) -> MessageBound:
    """The paper's main theorem for `partial_dp` with its own constants: claim D of design/proofs/partial-dp.md.

    >>> found = theorem_1(1024, 0.01, 10**9, 0.05)
    >>> found.rounds, {name: round(messages) for name, messages in found.terms.items()}
    (1428, {'exact start': 798403, 'reports': 45677295, 'synchronisation': 4386816})
    """
    require_probability("delta", delta)
    check_request(sites, alpha, delta)
    require_integer("total", total, 1)
    root = sqrt(sites)
    risk = log(4 / delta)
    # Each round grows the total by the factor 1 + alpha sqrt(k)/10 with probability 1/2 or more, independently.
    grown = log(total) / log1p(alpha * root / 10)
    rounds = ceil((sqrt(risk / 2) + sqrt(risk / 2 + 2 * grown)) ** 2)
    eta = delta / (2 * rounds)
    C = paper_constant(sites, eta)
    reports = reports_quantile(rounds * ceil(root), ceil(2 * C * root), 4 * root / C, delta / 4)
    terms = {
        "exact start": min(total, 16 * C * root / alpha + 1),
        "reports": reports,
        "synchronisation": 3.0 * sites * rounds,
    }
    return MessageBound(
        theorem="main theorem (claim D)",
        messages=sum(terms.values()),
        terms=terms,
        order=C * log(total) * (root / alpha + (sites if sites * alpha**2 > 1 else 0)),
        C=C,
        rounds=rounds,
        eta=eta,
        delta=delta,
        assumptions=(
            "every round has the plan of the calibration `paper` for this eta, and steps of at least 2",
            "all sites are present from the start, and messages arrive at once",
            "a synchronisation costs three messages for each site, as in the paper",
        ),
    )
