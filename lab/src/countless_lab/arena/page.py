"""The page of `countless lab report`: one self-contained HTML file that contains plotly's script."""

from html import escape
from typing import Any

from countless_lab.arena import figures, findings
from countless_lab.arena.report_data import ReportData
from countless_lab.simulation.world import MARK, NO_SECRETS

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.25rem 4rem; font: 16px/1.6 system-ui, sans-serif;
       color: #1f2937; background: #fafaf9; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 3rem 0 .25rem; }
p { margin: .4rem 0 1rem; max-width: 46rem; } .lead { color: #4b5563; } .finding { font-weight: 600; }
.plot, .table { background: #fff; border: 1px solid #e7e5e4; border-radius: 10px; padding: .5rem; overflow-x: auto; }
figure { margin: 0; } figcaption { font-weight: 600; padding: .5rem .75rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .55rem; text-align: right; border-bottom: 1px solid #f0efee; white-space: nowrap; }
th:first-child, td:first-child, td.words, th.words { text-align: left; }
td.words { white-space: normal; min-width: 16rem; }
.held { background: #ecfdf5; } .not-covered { background: #fef3c7; }
.violated { background: #fecaca; font-weight: 700; }
.key span { display: inline-block; padding: .1rem .5rem; border-radius: 4px; margin: 0 .75rem .25rem 0; }
small { color: #6b7280; }
"""

PAGE = """<!doctype html>
<html lang="en"> <head> <meta charset="utf-8"> <meta name="viewport" content="width=device-width,
initial-scale=1"> <title>Countless: report</title> <style>{style}</style> <script>{script}</script> </head>
<body> <h1>Countless</h1> <p class="lead">A global count over many machines, within 1 ± alpha at every
moment, even if traffic reacts to the answers. Games come from a seed and can be repeated. Not broken
in these games is not a proof: the proofs are in design/proofs.</p> {body} </body> </html>
"""

PARTS = (
    (
        "An attack, event by event",
        "The adversary sees the published estimates only. It feeds one site until the estimate changes, leaves it, and "
        "continues with the next. The green band is the bound; only auto guarantees it against such traffic.",
        findings.attack,
        figures.attack,
    ),
    (
        "Messages against sites",
        "The expected cost of the plans, with a failure probability of 1/10,000 for each round. The dotted line shows "
        "the slope of the lower bound for randomised tracking; its constant is not known, so its height is arbitrary. "
        "The plans of partial_dp for few sites have no noise.",
        findings.by_sites,
        figures.by_sites,
    ),
    (
        "Messages against alpha",
        "Half the error costs about twice the messages.",
        findings.by_alpha,
        figures.by_alpha,
    ),
    (
        "Messages against the total",
        "Ten times the events cost a constant more, not ten times as much.",
        findings.by_total,
        figures.by_total,
    ),
    (
        "Which plan is the cheapest",
        "Among those proved against traffic that reacts to the answers. The number is the cost relative to "
        "deterministic: below 1 is a saving. For few sites deterministic itself is the cheapest.",
        findings.crossover,
        figures.crossover,
    ),
)


def render(data: ReportData) -> str:
    from plotly.offline import get_plotlyjs

    body = [section(title, text, draw(data), found(data)) for title, text, found, draw in PARTS]
    body.insert(1, _tournament(data))
    if data.frameworks:
        body.append(_frameworks(data))
    return PAGE.format(style=STYLE, script=get_plotlyjs(), body="".join(body))


def section(title: str, text: str, figure: Any, finding: str = "") -> str:
    caption = escape(figure.layout.title.text)  # as text it wraps on a narrow screen, in the plot it would be cut
    figure.update_layout(title=None)
    over = f'<p class="finding">{escape(finding)}</p>\n' if finding else ""
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})
    return (
        f"<section>\n<h2>{escape(title)}</h2>\n{over}<p>{escape(text)}</p>\n"
        f'<figure class="plot"><figcaption>{caption}</figcaption>{drawn}</figure>\n</section>\n'
    )


def _tournament(data: ReportData) -> str:
    left_out = findings.left_out(data)
    schemes = list(dict.fromkeys(match["scheme"] for match in data.tournament if match["scheme"] not in left_out))
    note = f" Left out, because every game of theirs ended so: {escape(', '.join(left_out))}." if left_out else ""
    rows: dict[str, list[str]] = {}
    for match in data.tournament:
        if match["scheme"] in schemes:
            rows.setdefault(match["adversary"], []).append(_cell(match))
    first = data.tournament[0]
    head = "".join(f"<th>{escape(scheme)}</th>" for scheme in schemes)
    lines = "".join(f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>\n" for name, cells in rows.items())
    return (
        f'<section>\n<h2>The tournament</h2>\n<p class="finding">{escape(findings.tournament(data))}</p>\n'
        "<p>Worst error divided by alpha, over all events of all games, and how "
        f"many games were broken. {first['sites']:,} sites, alpha = {first['alpha']:.0%}, "
        f"delta = {first['delta']:.0%}, {first['events']:,} events, {first['trials']} games for each pair. A scheme "
        f"may use its whole allowance by design, so 0.99 is normal. {MARK}{note}</p>\n"
        '<p class="key"><span class="held">held</span>'
        '<span class="not-covered">broken, not covered by a guarantee</span>'
        '<span class="violated">broken, although the guarantee covers it</span></p>\n'
        f'<div class="table"><table><tr><th>adversary</th>{head}</tr>\n{lines}</table></div>\n</section>\n'
    )


def _cell(match: dict[str, Any]) -> str:
    broken = match["failures"]
    kind = "violated" if findings.violates(match) else "not-covered" if broken else "held"
    note = f" <small>{broken}/{match['trials']}</small>" if broken else ""
    note += "*" if not match["randomised"] and match["scheme"] not in NO_SECRETS else ""
    return f'<td class="{kind}">{match["worst_error_over_alpha"]:.2f}{note}</td>'


def _frameworks(data: ReportData) -> str:
    lines = "".join(
        f"<tr><td>{escape(row.marked)}</td><td>{row.messages:,}</td><td>{row.worst:.2f}</td>"
        f'<td class="words">{escape(row.claim)}</td></tr>\n'
        for row in data.frameworks
    )
    return (
        "<section>\n<h2>The frameworks the paper argues against</h2>\n"
        f'<p class="finding">{escape(findings.frameworks(data))}</p>\n'
        "<p>Built over copies of hyz and measured on "
        f"8 sites, alpha = 40 %, 1,000 events, under stop-after-jump, as baselines. {MARK}</p>\n"
        '<div class="table"><table><tr><th>tracker</th><th>messages</th><th>worst error / alpha</th>'
        f'<th class="words">what is known of it</th></tr>\n{lines}</table></div>\n</section>\n'
    )
