"""Sketch switching over `hyz` (Ben-Eliezer, Jayaram, Woodruff, Yogev 2020)."""

from countless.errors import InvalidParameter
from countless_lab.arena.frameworks.framework import Framework, flip_number
from countless_lab.arena.frameworks.hyz_copy import HyzCopy


class SketchSwitching(Framework):
    """One unused copy for each change of the estimate. A copy whose value was published is not used again.

    Every copy follows the stream from its first event, because a count cannot be learnt later. So the messages are
    those of one copy times half the flip number: a used copy is switched off. Each copy is within alpha/4; the
    estimate changes when the copy in use exceeds it by alpha/2.
    """

    scheme = "sketch switching"

    def __init__(self, sites: int, alpha: float, delta: float, horizon: int, seed: int) -> None:
        super().__init__(sites, alpha, delta, horizon, seed)
        flips = flip_number(alpha / 2 - alpha / 4, horizon)  # the estimate may change a little early
        eta = delta / flips / 40  # a copy's rounds share it evenly: there are fewer than 40 up to any horizon here
        self._copies = [HyzCopy(sites, alpha / 4, eta, self._rng.spawn("copy", i)) for i in range(flips)]
        self._used_sent = 0

    @property
    def copies(self) -> int:
        return len(self._copies)

    @property
    def sent(self) -> int:
        return self._used_sent + sum(copy.sent for copy in self._copies)

    @property
    def randomised(self) -> bool:
        return self._copies[0].step > 1

    def events_until_report(self, site: int) -> int:
        return min(copy.events_until_report(site) for copy in self._copies)

    def add(self, site: int, n: int) -> None:
        self.total += n
        for copy in self._copies:
            copy.add(site, n)
        while self._copies[0].estimate > (1 + self.alpha / 2) * self.estimate:
            if len(self._copies) == 1:
                raise InvalidParameter("horizon", self.horizon, "larger: every copy has been used")
            used = self._copies.pop(0)
            self._used_sent += used.sent
            self._publish(used.estimate)
            break
