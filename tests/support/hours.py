"""Windows of an hour, and a wall clock that shows one of them."""

HOUR = 3600.0
FIRST = 490_000  # a window


class HourClock:
    def __init__(self) -> None:
        self.show(0)

    def __call__(self) -> float:
        return self.seconds

    def show(self, window: int, second: float = 100.0) -> None:
        """The window of this number after the first one."""
        self.seconds = (FIRST + window) * HOUR + second
