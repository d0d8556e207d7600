"""Sketch switching over `hyz` (SPEC 5; Ben-Eliezer, Jayaram, Woodruff, Yogev 2020)."""

from countless.errors import InvalidParameter
from countless.lab.arena.frameworks.framework import Framework, flip_number
from countless.lab.arena.frameworks.hyz_copy import HyzCopy


class SketchSwitching(Framework):
    """One fresh copy for each change of the answer. A copy whose answer has been seen is never asked again.

    Every copy follows the stream from its first event, because a count cannot be learnt afterwards, so the
    messages are those of one copy times the flip number - times a half, since a copy that has been used is
    switched off. Each copy is within alpha/4; the answer moves when the copy in use has outgrown it by
    alpha/2.
    """

    scheme = "sketch switching"

    def __init__(self, sites: int, alpha: float, delta: float, horizon: int, seed: int) -> None:
        super().__init__(sites, alpha, delta, horizon, seed)
        flips = flip_number(alpha / 2 - alpha / 4, horizon)  # the answer may move a little early
        eta = delta / flips / 40  # a copy's rounds share it evenly: there are fewer than 40 up to any horizon here
        self._copies = [HyzCopy(sites, alpha / 4, eta, self._rng.spawn("copy", i)) for i in range(flips)]
        self._spent = 0

    @property
    def sent(self) -> int:
        """Messages of the copies in use and of those spent."""
        return self._spent + sum(copy.sent for copy in self._copies)

    def events_until_report(self, site: int) -> int:
        """Until the first copy speaks."""
        return min(copy.events_until_report(site) for copy in self._copies)

    def add(self, site: int, n: int) -> None:
        """Feed all, ask one."""
        self.total += n
        for copy in self._copies:
            copy.add(site, n)
        while self._copies[0].estimate > (1 + self.alpha / 2) * self.estimate:
            if len(self._copies) == 1:
                raise InvalidParameter("horizon", self.horizon, "larger: every copy has been used")
            used = self._copies.pop(0)
            self._spent += used.sent
            self._publish(used.estimate)
            break
