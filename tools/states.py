"""A picture of the states of an answer, from the table in the code: an arrow for each fact that changes the state."""

from html import escape

from countless.core.answer import STATE_TABLE, State

FACTS = (
    ("snapshots complete", "snapshot awaited"),
    ("all sites reachable", "a site is unreachable"),
    ("every event reported", "sites skip reports"),
)
PLACES = {State.EXACT: (120, 70), State.HOLDING: (620, 70), State.LEARNING: (120, 330), State.DEGRADED: (620, 330)}
COLOURS = {State.EXACT: "#1a7f5a", State.HOLDING: "#2a6fdb", State.LEARNING: "#a8650f", State.DEGRADED: "#c0392b"}
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="-30 0 790 400" font-family="sans-serif" font-size="13">
<title>The states of an answer, and the facts that lead from one to another</title>
<rect x="-30" width="790" height="400" fill="#fff"/>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 10 5 0 10z" fill="#777"/></marker></defs>
"""


def picture() -> str:
    """An arrow for each pair of states that the change of one fact connects, labelled with the facts."""
    arrows = [_arrow(start, end, sorted(facts)) for (start, end), facts in _moves().items()]
    return HEAD + "".join(arrows) + "".join(map(_box, PLACES)) + "</svg>\n"


def _moves() -> dict[tuple[State, State], set[str]]:
    moves: dict[tuple[State, State], set[str]] = {}
    for (complete, reachable, exact), state in STATE_TABLE.items():
        flips = (not complete, reachable, exact), (complete, not reachable, exact), (complete, reachable, not exact)
        for flipped, (index, names) in zip(flips, enumerate(FACTS), strict=True):
            if STATE_TABLE[flipped] is not state:
                moves.setdefault((state, STATE_TABLE[flipped]), set()).add(names[0] if flipped[index] else names[1])
    return moves


def _box(state: State) -> str:
    x, y = PLACES[state]
    return (
        f'<rect x="{x - 75}" y="{y - 26}" width="150" height="52" rx="10" fill="{COLOURS[state]}"/>'
        f'<text x="{x}" y="{y + 6}" fill="#fff" font-size="18" text-anchor="middle">{escape(state)}</text>\n'
    )


def _arrow(start: State, end: State, facts: list[str]) -> str:
    (x1, y1), (x2, y2) = PLACES[start], PLACES[end]
    across, down = x2 - x1, y2 - y1
    length = (across**2 + down**2) ** 0.5
    aside_x, aside_y = -down / length * 9, across / length * 9  # the two directions of a pair run side by side
    cut = min(84 / abs(across) if across else 1, 34 / abs(down) if down else 1)  # the part under a box
    a = (x1 + across * cut + aside_x, y1 + down * cut + aside_y)
    b = (x2 - across * cut + aside_x, y2 - down * cut + aside_y)
    at = 0.3 if across and down else 0.5  # along a diagonal the labels of the two directions stand apart
    x, y = a[0] + (b[0] - a[0]) * at + aside_x, a[1] + (b[1] - a[1]) * at + aside_y * 1.8
    anchor = "middle" if not down else "start" if aside_x > 0 else "end"
    y -= 8 * (len(facts) - 1)
    lines = "".join(f'<tspan x="{x:.0f}" dy="{16 * (i > 0)}">{escape(fact)}</tspan>' for i, fact in enumerate(facts))
    return (
        f'<path d="M{a[0]:.0f} {a[1]:.0f} {b[0]:.0f} {b[1]:.0f}" stroke="#777" fill="none" marker-end="url(#tip)"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="{anchor}" fill="#444">{lines}</text>\n'
    )
