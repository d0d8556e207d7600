"""`docs/images/kill.svg`: the requests admitted in each minute, a panel for each contestant."""

from collections.abc import Iterator, Sequence

from race.kills.apps import LIMIT
from race.kills.play import REPLICA_KILLED_IN, SERVER_KILLED_IN, Minute, Result

WIDTH, HEIGHT = 760, 320
LEFT, GAP, TOP, FOOT = 44, 16, 62, 266  # of the panels
HIGHEST = 200  # requests
OURS = "Countless"

STYLE = """<style>
text { font: 16px system-ui, sans-serif; fill: #1b1e23 }
.small { font-size: 14px; fill: #5d646e }
.axis { stroke: #d5d2cb }
.limit { stroke: #1b1e23; stroke-dasharray: 5 4 }
.ours { fill: #0f766e }
.over { fill: #b3261e }
.others { fill: #8a929c }
.failed { fill: #c9a227 }
.kill { fill: #b3261e; font-weight: 700 }
@media (prefers-color-scheme: dark) {
text { fill: #e8e6e1 } .small { fill: #a9afb8 } .axis { stroke: #454b54 } .limit { stroke: #e8e6e1 }
.ours { fill: #2dd4bf } .over, .kill { fill: #ff8a80 } .others { fill: #8a929c } .failed { fill: #d9b84a }
}
</style>
"""


def finding(results: Sequence[Result]) -> str:
    """The sentence that the figure shows."""
    most = [f"{each.contestant} at most {max(minute.admitted for minute in each.minutes)}" for each in results]
    return f"Requests admitted in a minute under a limit of {LIMIT}, with two kills: " + ", ".join(most) + "."


def picture(results: Sequence[Result]) -> str:
    width = (WIDTH - LEFT - GAP * len(results)) / len(results)
    panels = "".join(
        part
        for number, result in enumerate(results)
        for part in _panel(result, LEFT + number * (width + GAP), width, labelled=not number)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n'
        f"<title>{finding(results)}</title>\n{STYLE}{panels}"
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle" class="small">minute (× kill -9: of the server, '
        "of a replica); thin bars: 503 or no answer</text>\n</svg>\n"
    )


def _panel(result: Result, left: float, width: float, *, labelled: bool) -> Iterator[str]:
    yield f'<text x="{left:.1f}" y="22" font-weight="600">{result.contestant}</text>\n'
    for level in (0, LIMIT, HIGHEST):
        y = _y(level)
        yield f'<path d="M{left:.1f} {y:.1f}h{width:.1f}" class="{"limit" if level == LIMIT else "axis"}"/>\n'
        if labelled:
            yield f'<text x="{left - 8:.1f}" y="{y + 5:.1f}" text-anchor="end" class="small">{level}</text>\n'
    step = width / len(result.minutes)
    for number, minute in enumerate(result.minutes):
        yield from _bars(minute, left + number * step, step, "ours" if result.contestant == OURS else "others")
        middle = left + (number + 0.5) * step
        mark = " ×" if number + 1 in (SERVER_KILLED_IN, REPLICA_KILLED_IN) else ""
        yield (
            f'<text x="{middle:.1f}" y="{FOOT + 20}" text-anchor="middle" class="{"kill" if mark else "small"}">'
            f"{number + 1}{mark}</text>\n"
        )


def _bars(minute: Minute, left: float, step: float, kind: str) -> Iterator[str]:
    top = _y(minute.admitted)
    kind = "over" if minute.admitted > LIMIT else kind
    yield f'<rect x="{left + step * 0.1:.1f}" y="{top:.1f}" width="{step * 0.55:.1f}" height="{FOOT - top:.1f}" '
    yield f'class="{kind}"/>\n'
    yield f'<text x="{left + step * 0.375:.1f}" y="{top - 5:.1f}" text-anchor="middle" class="small">'
    yield f"{minute.admitted}</text>\n"
    if minute.failed:
        top = _y(minute.failed)
        yield f'<rect x="{left + step * 0.7:.1f}" y="{top:.1f}" width="{step * 0.2:.1f}" height="{FOOT - top:.1f}" '
        yield 'class="failed"/>\n'


def _y(requests: int) -> float:
    return FOOT - min(requests, HIGHEST) / HIGHEST * (FOOT - TOP)
