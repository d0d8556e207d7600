"""A picture of the recorded attack that the page replays: the errors of both trackers, event by event."""

import json
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).parents[1] / "src/countless/server/page/attack.json"
LEFT, WIDTH, TOP, HEIGHT = 40, 710, 34, 236  # of the plot
MOST, LEAST = 5.5, -1.5  # errors at its top and its foot, in multiples of the error allowed
COLOURS = {"hyz": "#b3261e", "auto": "#0f766e"}


def picture() -> str:
    match = json.loads(RECORDING.read_text(encoding="utf-8"))
    sites, alpha, events = match["sites"], match["alpha"], match["events"]
    title = f"An adversary that sees the answers, {sites:,} sites: the error, in multiples of the {alpha:.0%} allowed"
    marks = "".join(_level(error) for error in range(-1, 6))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 320" font-family="sans-serif" font-size="13">\n'
        f'<title>{title}</title>\n<rect width="760" height="320" fill="#fff"/>\n'
        f'<text x="{LEFT}" y="20" fill="#1b1e23">{title}</text>\n'
        f'<rect x="{LEFT}" y="{_y(1):.1f}" width="{WIDTH}" height="{_y(-1) - _y(1):.1f}" fill="#0f766e" '
        f'opacity="0.14"/>\n{marks}'
        + "".join(_line(each, events) for each in match["contestants"])
        + f'<text x="{LEFT + WIDTH}" y="300" text-anchor="end" fill="#5d646e">{events:,} events</text>\n</svg>\n'
    )


def _y(error: float) -> float:
    return TOP + (MOST - error) / (MOST - LEAST) * HEIGHT


def _level(error: int) -> str:
    y = _y(error)
    return (
        f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#e4e1db"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#5d646e">{error}</text>\n'
    )


def _line(contestant: dict[str, Any], events: int) -> str:
    colour = COLOURS[contestant["scheme"]]
    points = " ".join(
        f"{LEFT + total / events * WIDTH:.1f},{_y(error):.1f}" for total, _, _, error in contestant["frames"]
    )
    name, worst = contestant["name"], contestant["worst"]
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>\n'
        f'<text x="{LEFT + 8}" y="{_y(worst) - 6:.1f}" fill="{colour}" font-weight="600">'
        f"{name[0].upper()}{name[1:]}: at most {worst:.2f}</text>\n"
    )
