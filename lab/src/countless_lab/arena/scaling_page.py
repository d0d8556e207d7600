"""The plots of `countless lab scaling`: one self-contained HTML file."""

from collections.abc import Sequence
from typing import Any

from countless_lab.arena.figures import COLOURS, plot_of
from countless_lab.arena.page import PAGE, STYLE, section
from countless_lab.arena.scaling import Curve

TEXTS = {
    "sites": "Messages while the total grows e-fold. The exponents are in the legend.",
    "sites above 1/alpha^2": "The same where the paper's assumption k <= 1/alpha^2 does not hold.",
    "1/alpha": "Half the error costs about twice the messages.",
    "ln N": "Messages since the start of the measurement: a straight line in ln N.",
}


def render(curves: Sequence[Curve]) -> str:
    from plotly.offline import get_plotlyjs

    body = [section(f"Messages against {axis}", text, _figure(curves, axis)) for axis, text in TEXTS.items()]
    return PAGE.format(style=STYLE, script=get_plotlyjs(), body="".join(body))


def _figure(curves: Sequence[Curve], axis: str) -> Any:
    logarithmic = axis != "ln N"
    lines = []
    for curve in curves:
        if curve.axis == axis:
            marked = curve.scheme + "*" * any(curve.unrandomised)
            name = f"{marked}: {curve.slope:.2f}" if logarithmic else marked
            lines.append((name, COLOURS.get(curve.scheme), curve.xs, curve.messages))
    return plot_of(f"Messages by {axis}", axis, "messages", lines, logarithmic)
