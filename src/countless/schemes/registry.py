"""The schemes by name. A new scheme is one file and one line here; the conformance suite finds it here.

Other packages add theirs by the entry point group `countless.schemes`.
"""

from typing import Literal, get_args

from countless.core.estimator import Scheme
from countless.errors import UnknownName
from countless.plugins import plugins
from countless.schemes.auto import Auto
from countless.schemes.deterministic import Deterministic
from countless.schemes.dithered import Dithered
from countless.schemes.exact import Exact
from countless.schemes.lattice import Lattice
from countless.schemes.partial_dp import PartialDP, PartialDPPaper
from countless.schemes.sampled import Sampled

SchemeName = Literal[
    "auto",
    "exact",
    "deterministic",
    "lattice",
    "partial_dp",
    "partial_dp_paper",
    "sampled",
    "dithered",
]
# What an adversary may know, from least to most. A scheme is safe against its own kind and every weaker one.
AdversaryName = Literal["oblivious", "adaptive", "sees-everything"]
ADVERSARIES: tuple[AdversaryName, ...] = get_args(AdversaryName)

SCHEMES: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (Auto, Exact, Deterministic, Lattice, PartialDP, PartialDPPaper, Sampled, Dithered)
}
SCHEMES.update(plugins("countless.schemes", Scheme, SCHEMES))


def require_adversary(adversary: str) -> None:
    if adversary not in ADVERSARIES:
        raise UnknownName("adversary", adversary, ADVERSARIES)


def is_safe_against(scheme: str, adversary: str) -> bool:
    """Does a scheme's guarantee cover this kind of adversary?"""
    return ADVERSARIES.index(SCHEMES[scheme].safe_against) >= ADVERSARIES.index(adversary)


def scheme_named(name: str, adversary: str = "adaptive", *, may_block: bool = True) -> Scheme:
    """A scheme for a counter. `auto` chooses among those that are safe against the adversary; the others ignore it."""
    require_adversary(adversary)
    if not isinstance(name, str) or name not in SCHEMES:
        raise UnknownName("scheme", name, SCHEMES)
    return SCHEMES[name].create(adversary, may_block=may_block)
