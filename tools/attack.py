"""A picture of the recorded attack that the page replays: the errors of both trackers, event by event."""

import json
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).parents[1] / "src/countless/server/page/attack.json"
LEFT, WIDTH, TOP, HEIGHT = 66, 512, 36, 236  # of the plot
MOST, LEAST = 5.5, -1.5  # errors at its top and its foot, in multiples of the error allowed
CLASSES = {"hyz": "broken", "auto": "ours"}
FINDING = "Traffic that reacts drives the classical tracker to five times its bound; Countless stays inside"
STYLE = """text { font: 17px system-ui, sans-serif; fill: #1b1e23 }
.small { font-size: 15px; fill: #5d646e }
.grid { stroke: #e4e1db }
polyline { fill: none; stroke-width: 2.5; stroke-linejoin: round }
polyline.ours { stroke: #0f766e } polyline.broken { stroke: #b3261e }
text.ours { fill: #0f766e; font-weight: 600 } text.broken { fill: #b3261e; font-weight: 600 }
.band { fill: #0f766e; opacity: 0.14 }
@media (prefers-color-scheme: dark) {
text { fill: #e8e6e1 } .small { fill: #a9afb8 } .grid { stroke: #3a4048 }
polyline.ours { stroke: #2dd4bf } polyline.broken { stroke: #ff8a80 }
text.ours { fill: #2dd4bf } text.broken { fill: #ff8a80 } .band { fill: #2dd4bf }
}"""


def picture() -> str:
    match = json.loads(RECORDING.read_text(encoding="utf-8"))
    sites, alpha, events = match["sites"], match["alpha"], match["events"]
    setting = f"An adversary that sees the answers; {sites:,} sites, {alpha:.0%} allowed"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 320">\n<title>{FINDING}</title>\n'
        f'<style>\n{STYLE}\n</style>\n<text x="{LEFT}" y="20">{setting}</text>\n'
        f'<rect x="{LEFT}" y="{_y(1):.1f}" width="{WIDTH}" height="{_y(-1) - _y(1):.1f}" class="band"/>\n'
        + "".join(map(_level, range(-1, 6)))
        + f'<text transform="translate(20 {_y(2):.1f}) rotate(-90)" text-anchor="middle" class="small">'
        "error / allowed error</text>\n"
        f'<text x="{LEFT + WIDTH / 2}" y="{_y(-1) - 6:.1f}" text-anchor="middle" class="ours">allowed</text>\n'
        + "".join(_line(each, events) for each in match["contestants"])
        + "".join(_mark(count, events) for count in range(0, events + 1, 100_000))
        + f'<text x="{LEFT + WIDTH / 2}" y="314" text-anchor="middle" class="small">events</text>\n</svg>\n'
    )


def _y(error: float) -> float:
    return TOP + (MOST - error) / (MOST - LEAST) * HEIGHT


def _x(count: int, events: int) -> float:
    return LEFT + count / events * WIDTH


def _level(error: int) -> str:
    y = _y(error)
    return (
        f'<path d="M{LEFT} {y:.1f}h{WIDTH}" class="grid"/>'
        f'<text x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end" class="small">{error}</text>\n'
    )


def _mark(count: int, events: int) -> str:
    return f'<text x="{_x(count, events):.1f}" y="294" text-anchor="middle" class="small">{count:,}</text>\n'


def _line(contestant: dict[str, Any], events: int) -> str:
    """The errors, and at their end the name and the worst of them."""
    kind, name, worst, frames = CLASSES[contestant["scheme"]], *(contestant[key] for key in ("name", "worst", "frames"))
    points = " ".join(f"{_x(total, events):.1f},{_y(error):.1f}" for total, _, _, error in frames)
    x, y = LEFT + WIDTH + 8, _y(frames[-1][-1])
    return (
        f'<polyline points="{points}" class="{kind}"/>\n'
        f'<text x="{x}" y="{y - 2:.1f}" class="{kind}">{name.removeprefix("the ")}</text>'
        f'<text x="{x}" y="{y + 18:.1f}" class="{kind}">up to {worst:.2f}</text>\n'
    )
