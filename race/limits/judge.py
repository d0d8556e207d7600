"""The judge knows every request and every decision, and so how much of the limit is left in truth.

A refusal is *wrong* if the request would have fitted the limit, beside the units that admitted requests had spent or
held until then, and those of the requests that had been refused wrongly. So wrong refusals are what an exact limiter
would have admitted in the order of arrival: one unit that is left makes one refusal wrong, not every later one.
"""

from race.limits.workloads import Request


class Units:
    """Spent and held by some requests."""

    def __init__(self) -> None:
        self.spent = 0
        self.held = 0

    @property
    def used(self) -> int:
        return self.spent + self.held

    def add(self, request: Request) -> None:
        if request.until is None:
            self.spent += request.units
        else:
            self.held += request.units

    def settle(self, request: Request) -> None:
        self.held -= request.units
        self.spent += request.used


class Judge:
    """The decisions of one run."""

    def __init__(self, limit: int) -> None:
        self.admitted = Units()
        self.over = 0  # units spent beyond the limit
        self.first_refusal: int | None = None  # units spent and held at that time
        self.wrong_refusals = 0
        self._limit = limit
        self._wronged = Units()

    def allow(self, request: Request) -> Units:
        """Where the units are counted, and settled later."""
        self.admitted.add(request)
        self._note_spending()
        return self.admitted

    def refuse(self, request: Request) -> Units | None:
        """Where the units would be counted, if the refusal is wrong."""
        if self.first_refusal is None:
            self.first_refusal = self.admitted.used
        if self.admitted.used + self._wronged.used + request.units > self._limit:
            return None
        self.wrong_refusals += 1
        self._wronged.add(request)
        return self._wronged

    def settle(self, request: Request, units: Units) -> None:
        units.settle(request)
        self._note_spending()

    def _note_spending(self) -> None:
        self.over = max(self.over, self.admitted.spent - self._limit)
