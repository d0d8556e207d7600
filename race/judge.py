"""The judge knows every event and compares each answer with the true total, at every moment of virtual time.

Totals and answers change at events and at flushes only, so it is enough to compare there. The *error* is
`|answer - total| / total`. The *age* is the time since the first event that an answer this low cannot contain; an
answer that is too high has no age.
"""

from array import array


class Judge:
    """The errors and ages of one run."""

    def __init__(self, counters: int, halfway: float) -> None:
        self.totals = [0] * counters
        self.answers = [0.0] * counters
        self.worst_error = 0.0
        self.late_error = 0.0  # the worst one after the first half of the time, without the effects of the start
        self.worst_age = 0.0
        self._halfway = halfway
        self._times = [array("d") for _ in range(counters)]

    @property
    def total(self) -> int:
        """Over all counters."""
        return sum(self.totals)

    def age_until(self, now: float, counter: int) -> None:
        """Time passes without a change of this counter."""
        answer = self.answers[counter]
        if answer < self.totals[counter]:
            self.worst_age = max(self.worst_age, now - self._times[counter][int(answer)])

    def add_event(self, now: float, counter: int) -> None:
        self.totals[counter] += 1
        self._times[counter].append(now)

    def set_answer(self, counter: int, answer: float) -> None:
        self.answers[counter] = answer

    def compare(self, now: float, counter: int) -> None:
        total = self.totals[counter]
        if total:
            error = abs(self.answers[counter] - total) / total
            self.worst_error = max(self.worst_error, error)
            if now >= self._halfway:
                self.late_error = max(self.late_error, error)
