"""What a run has measured, by name, for a comparison with another checkout (`against.py`). Less is better."""

from collections.abc import Mapping

Figures = dict[str, float]
measured: Figures = {}


def add(section: str, figures: Mapping[str, float]) -> None:
    """Processor time, or bytes: the wall clock of a busy machine compares nothing."""
    measured.update({f"{section}: {name}": value for name, value in figures.items()})
