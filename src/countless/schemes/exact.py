"""`exact`: every site reports every event. The start of every other scheme, and what their costs are compared with."""

from countless.core.estimator import ExactSum, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.random_source import RandomSource


class Exact(Scheme):
    """Every event is a message, and the answer is the exact total.

    Formal guarantees: estimate = total at every moment, against every adversary. One message for each event.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=3, scheme="exact")
    >>> tracker.site(0).add(41); tracker.site(2).add()
    >>> tracker.answer.estimate, str(tracker.answer.state)
    (42, 'exact')

    """

    name = "exact"
    safe_against = "sees-everything"
    exact = True

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        return RoundSetup(self.name, ExactSum())
