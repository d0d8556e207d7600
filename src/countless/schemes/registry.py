"""The schemes by name. A new scheme is one file and one line here; the conformance suite picks it up by itself."""

from countless.core.estimator import Scheme
from countless.errors import UnknownName
from countless.schemes.auto import Auto
from countless.schemes.blocks import Blocks
from countless.schemes.deterministic import Deterministic
from countless.schemes.dithered import Dithered
from countless.schemes.exact import Exact
from countless.schemes.hyz import Hyz
from countless.schemes.lattice import Lattice
from countless.schemes.partial_dp import PartialDP
from countless.schemes.sampled import Sampled

# What an adversary may know, from least to most. A scheme is safe against its own kind and every weaker one.
ADVERSARIES = ("oblivious", "adaptive", "sees-everything")

SCHEMES: dict[str, type[Scheme]] = {
    scheme.name: scheme for scheme in (Exact, Deterministic, Hyz, Blocks, Lattice, PartialDP, Sampled, Dithered)
}


def require_adversary(adversary: str) -> None:
    """Refuse an adversary nobody has heard of."""
    if adversary not in ADVERSARIES:
        raise UnknownName("adversary", adversary, ADVERSARIES)


def stands_against(scheme: str, adversary: str) -> bool:
    """Whether a scheme's guarantee covers this kind of adversary."""
    return ADVERSARIES.index(SCHEMES[scheme].safe_against) >= ADVERSARIES.index(adversary)


def scheme_named(name: str, adversary: str = "adaptive") -> Scheme:
    """A fresh scheme. `auto` picks among those that stand against the adversary."""
    require_adversary(adversary)
    if name == Auto.name:
        return Auto(adversary)
    if not isinstance(name, str) or name not in SCHEMES:
        raise UnknownName("scheme", name, [Auto.name, *SCHEMES])
    return SCHEMES[name]()
