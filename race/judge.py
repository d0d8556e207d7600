"""The judge: knows every event, and compares each answer with the truth at every moment of virtual time.

Truth and answers only change at events and at flushes, so every moment is looked at if these are. The *error* is
`|answer - truth| / truth`. The *age* is how long ago the total was what the answer says now: the time since the first
event that an answer this low cannot contain. An answer that is too high has no age; its error tells.
"""

from array import array


class Judge:
    """One contestant's run."""

    def __init__(self, counters: int, halfway: float) -> None:
        self.truth = [0] * counters
        self.answers = [0.0] * counters
        self.worst_error = 0.0
        self.late_error = 0.0  # the worst one after the first half of the time: what start-up does not explain
        self.worst_age = 0.0
        self._halfway = halfway
        self._times = [array("d") for _ in range(counters)]

    @property
    def total(self) -> int:
        """The truth over all counters."""
        return sum(self.truth)

    def wait(self, now: float, counter: int) -> None:
        """Nothing has changed until now: how old has the answer become?"""
        answer = self.answers[counter]
        if answer < self.truth[counter]:
            self.worst_age = max(self.worst_age, now - self._times[counter][int(answer)])

    def happen(self, now: float, counter: int) -> None:
        """An event."""
        self.truth[counter] += 1
        self._times[counter].append(now)

    def hear(self, counter: int, answer: float) -> None:
        """The system would say this from now on."""
        self.answers[counter] = answer

    def look(self, now: float, counter: int) -> None:
        """Compare."""
        truth = self.truth[counter]
        if truth:
            error = abs(self.answers[counter] - truth) / truth
            self.worst_error = max(self.worst_error, error)
            if now >= self._halfway:
                self.late_error = max(self.late_error, error)
