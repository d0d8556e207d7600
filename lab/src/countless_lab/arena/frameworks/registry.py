"""The robust-streaming frameworks by the names that `countless lab attack` takes."""

from countless_lab.arena.frameworks.difference_estimators import DifferenceEstimators
from countless_lab.arena.frameworks.framework import Framework
from countless_lab.arena.frameworks.private_median import PrivateMedian
from countless_lab.arena.frameworks.sketch_switching import SketchSwitching

FRAMEWORKS: dict[str, type[Framework]] = {
    kind.scheme.replace(" ", "-"): kind for kind in (SketchSwitching, DifferenceEstimators, PrivateMedian)
}
