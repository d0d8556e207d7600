"""A chart of error against messages for each workload, in one HTML file that contains plotly's script."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

from race.killed import Loss
from race.play import Result

STYLE = """
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.25rem 4rem; font: 16px/1.6 system-ui, sans-serif;
       color: #1f2937; background: #fafaf9; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin: 3rem 0 .25rem; }
.plot { background: #fff; border: 1px solid #e7e5e4; border-radius: 10px; padding: .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #e7e5e4; }
th:first-child, td:first-child { text-align: left; }
"""
COLOURS = ("#b91c1c", "#f59e0b", "#7c3aed", "#0891b2", "#6b7280", "#2563eb", "#059669")
TICKS = {1: "100 %", 0.1: "10 %", 0.01: "1 %", 0.001: "0.1 %", 0.0001: "0.01 %", 0.00001: "none"}
NO_ERROR = min(TICKS)  # where a logarithmic scale shows no error


def render(results: Sequence[Result], losses: Sequence[Loss], alpha: float) -> str:
    from plotly.offline import get_plotlyjs

    plots = [
        f'<h2>{escape(name)}</h2><div class="plot">{_plot(list(rows), alpha)}</div>'
        for name, rows in groupby(results, lambda row: row.workload)
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Countless: the race</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body><h1>The race</h1>"
        "<p>Fewer messages are on the left, smaller errors at the bottom. Messages include heartbeats. The worst error "
        f"is that of the second half of the time. The dotted line is the bound of Countless: {alpha:.0%}. Contestants "
        "without any error are at the bottom. The area of a dot grows with its bytes. A click in the legend hides a "
        f"contestant.</p>{''.join(plots)}"
        f"{_lost(losses) if losses else ''}</body></html>\n"
    )


def _plot(rows: list[Result], alpha: float) -> str:
    from plotly import graph_objects

    most = max(row.bytes for row in rows)
    figure = graph_objects.Figure()
    for row, colour in zip(rows, COLOURS, strict=False):
        figure.add_trace(_dot(graph_objects, row, colour, most))
    figure.add_trace(_bound(graph_objects, rows, alpha))
    figure.update_layout(template="simple_white", height=420, margin={"t": 20, "b": 50}, legend={"orientation": "v"})
    figure.update_xaxes(type="log", title="messages and heartbeats", dtick=1)
    ticks = {"tickvals": list(TICKS), "ticktext": list(TICKS.values())}
    figure.update_yaxes(type="log", title="worst error, second half", range=[-5.3, 0.2], **ticks)
    html: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return html


def _dot(graph_objects: Any, row: Result, colour: str, most: int) -> Any:
    return graph_objects.Scatter(
        x=[row.messages + row.heartbeats],
        y=[max(NO_ERROR, row.late_error)],
        name=row.contestant,
        mode="markers",
        marker={"color": colour, "size": 10 + 30 * (row.bytes / most) ** 0.5, "opacity": 0.7},
        hovertemplate=f"%{{x:,}} messages, {row.bytes:,} bytes, error {row.late_error:.2%}, "
        f"oldest answer {row.worst_age:,.1f} s<extra>{row.contestant}</extra>",
    )


def _bound(graph_objects: Any, rows: list[Result], alpha: float) -> Any:
    ends = [row.messages + row.heartbeats for row in rows]
    style = {"color": "#059669", "dash": "dot", "width": 1.5}
    x = [min(ends), max(ends)]
    return graph_objects.Scatter(x=x, y=[alpha, alpha], mode="lines", line=style, name="bound of Countless")


def _lost(losses: Sequence[Loss]) -> str:
    lines = "".join(
        f"<tr><td>{escape(row.contestant)}</td><td>{row.sites_killed:,}</td><td>{row.server_killed:,}</td></tr>"
        for row in losses
    )
    return (
        f"<h2>Events lost by kill -9, of {losses[0].counted_until_then:,}</h2>"
        f"<table><tr><th></th><th>all sites killed</th><th>server killed and restarted</th></tr>{lines}</table>"
    )
