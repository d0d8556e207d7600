"""Negative controls whose step is larger than what is proved."""

from dataclasses import replace
from math import sqrt

from countless.core.estimator import RoundContext
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.hyz import Hyz
from countless.schemes.lattice import Lattice


class Thrifty(Lattice):
    """A tenth of the allowance, so ten times the step: the errors of many sites do not cancel that well."""

    name = "thrifty"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        return [replace(plan, allowance=plan.allowance / 10) for plan in super().plans(context, may_block)]


class HyzClassical(Hyz):
    """`hyz` with the calibration of the literature: right at any one moment with probability 3/4.

    By Chebyshev: the standard deviation of the error is at most sqrt(k) steps, and two of them are allowed. There is
    no guarantee for all moments together, which `hyz` itself has.
    """

    name = "hyz-classical"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        return [replace(plan, allowance=2 * sqrt(context.sites)) for plan in super().plans(context, may_block)]
