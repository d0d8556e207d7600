"""The figures of `countless lab report`, drawn by plotly from a `ReportData`."""

from collections.abc import Sequence
from math import log10
from typing import Any

from countless.errors import MissingExtra
from countless_lab.arena.report_data import (
    ALPHAS,
    MAP_ALPHAS,
    MAP_SITES,
    ROBUST,
    SITES,
    TYPICAL_ALPHA,
    TYPICAL_SITES,
    ReportData,
)

COLOURS = {
    "deterministic": "#6b7280",
    "partial_dp_paper": "#d6a77a",
    "partial_dp": "#b45309",
    "sampled": "#0e7490",
    "dithered": "#7c3aed",
    "auto": "#15803d",
    "lattice": "#94a3b8",
    "hyz": "#dc2626",
}
LABELS = {
    "partial_dp_paper": "partial_dp, the paper's constants",
    "partial_dp": "partial_dp, proven constants",
    "lattice": "lattice (oblivious streams only)",
    "auto": "auto (the cheapest robust plan)",
}
DASHES = {"lattice": "dot", "auto": "solid", "partial_dp_paper": "dash"}


Line = tuple[str, str | None, Sequence[float], Sequence[float]]


def _plotly() -> Any:
    try:
        import plotly.graph_objects
    except ImportError:
        raise MissingExtra("plotly", "figures", "countless-lab") from None
    return plotly.graph_objects


def _figure(title: str, across: str, up: str, x: dict[str, Any] | None = None, y: dict[str, Any] | None = None) -> Any:
    figure = _plotly().Figure()
    figure.update_layout(
        template="plotly_white",
        title={"text": title},
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1f2937"},
        margin={"l": 60, "r": 15, "t": 15, "b": 60},
        legend={"orientation": "h", "y": -0.22},
        height=480,
        hovermode="closest",
    )
    figure.update_xaxes(title=across, **(x or {}))
    figure.update_yaxes(title=up, **(y or {}))
    return figure


def _log(**more: Any) -> dict[str, Any]:
    # One tick for each power of ten: the labels of 2 and 5 in between would overlap in a small plot.
    return {"type": "log", "dtick": 1, "exponentformat": "power", **more}


def plot_of(title: str, across: str, up: str, lines: Sequence[Line], logarithmic: bool) -> Any:
    """Lines of points: (name, colour or None, xs, ys)."""
    scale = _log() if logarithmic else {}
    figure = _figure(title, across, up, x=scale, y=scale)
    for name, colour, xs, ys in lines:
        style = {"color": colour, "width": 2}
        figure.add_trace(_plotly().Scatter(x=list(xs), y=list(ys), mode="lines+markers", name=name, line=style))
    return figure


def attack(data: ReportData) -> Any:
    facts = data.attack
    title = f"{facts['sites']:,} sites under {facts['adversary']}: error over time"
    figure = _figure(title, "events so far", "error / alpha", x=_log())
    figure.add_hrect(y0=-1, y1=1, fillcolor="#15803d", opacity=0.12, line_width=0)
    for edge in (-1, 1):
        figure.add_hline(y=edge, line={"color": "#15803d", "width": 1})
    names = {"hyz": "hyz (the classical tracker)", "lattice": "lattice (oblivious)", "auto": "auto (countless)"}
    for run in data.attacked:
        style = {"color": COLOURS[run.scheme], "width": 2}
        trace = _plotly().Scatter(x=run.totals, y=run.errors, mode="lines", name=names[run.scheme], line=style)
        figure.add_trace(trace)
    end = log10(max(run.totals[-1] for run in data.attacked))
    figure.update_xaxes(range=[end - 1.5, end])  # before that every event is reported
    return figure


def _curves(figure: Any, xs: Any, curves: dict[str, list[float]]) -> Any:
    for name, ys in curves.items():
        line = {"color": COLOURS[name], "width": 4 if name == "auto" else 2, "dash": DASHES.get(name, "solid")}
        label = LABELS.get(name, name)
        hover = "%{x:,} → %{y:,.0f} messages"
        trace = _plotly().Scatter(x=list(xs), y=ys, mode="lines+markers", name=label, line=line, hovertemplate=hover)
        # `auto` covers the scheme that it chose: keep that one visible.
        trace.opacity = 0.45 if name == "auto" else 1.0
        figure.add_trace(trace)
    return figure


def by_sites(data: ReportData) -> Any:
    title = f"Messages while the total grows e-fold, alpha = {TYPICAL_ALPHA:.0%}"
    figure = _curves(_figure(title, "sites", "messages per e-fold", x=_log(), y=_log()), SITES, data.by_sites)
    style = {"color": "#111827", "width": 1.5, "dash": "dot"}
    bound = _plotly().Scatter(
        x=list(SITES), y=data.lower_bound, mode="lines", name="slope of the lower bound, sqrt(k)/alpha", line=style
    )
    figure.add_trace(bound)
    return figure


def by_alpha(data: ReportData) -> Any:
    title = f"Messages while the total grows e-fold, {TYPICAL_SITES:,} sites"
    figure = _figure(title, "alpha", "messages per e-fold", x=_log(), y=_log())
    return _curves(figure, ALPHAS, data.by_alpha)


def by_total(data: ReportData) -> Any:
    title = f"Messages from the first event on, {TYPICAL_SITES:,} sites, alpha = {TYPICAL_ALPHA:.0%}"
    figure = _figure(title, "events counted", "messages sent in all", x=_log(), y=_log())
    figure = _curves(figure, data.totals, data.by_total)
    style = {"color": "#111827", "width": 1.5, "dash": "dot"}
    every = _plotly().Scatter(x=data.totals, y=data.totals, mode="lines", name="one message per event", line=style)
    figure.add_trace(every)
    figure.update_xaxes(dtick=3)
    figure.update_yaxes(range=[3, 8])
    return figure


def crossover(data: ReportData) -> Any:
    figure = _figure("The cheapest robust plan, and its cost relative to deterministic", "sites", "alpha")
    numbers = [[ROBUST.index(name) for name in row] for row in data.cheapest]
    shades = [COLOURS[name] for name in ROBUST for _ in (0, 1)]
    scale = [[(i + j) / len(ROBUST), shades[2 * i]] for i in range(len(ROBUST)) for j in (0, 1)]
    heat = _plotly().Heatmap(
        x=[f"{k:,}" for k in MAP_SITES],
        y=[f"{alpha:.1%}" for alpha in MAP_ALPHAS],
        z=numbers,
        zmin=-0.5,
        zmax=len(ROBUST) - 0.5,
        colorscale=scale,
        showscale=False,
        customdata=data.cheapest,
        text=[[f"{ratio:.2f}" for ratio in ratios] for ratios in data.ratio],
        texttemplate="%{text}",
        textfont={"color": "white", "size": 11},
        hovertemplate="%{x} sites, alpha %{y}: %{customdata} at %{text}<extra></extra>",
        xgap=3,
        ygap=3,
        opacity=0.85,
    )
    figure.add_trace(heat)
    for name in ROBUST:  # a heat map has no legend
        square = {"color": COLOURS[name], "size": 12, "symbol": "square"}
        figure.add_trace(_plotly().Scatter(x=[None], y=[None], mode="markers", marker=square, name=name))
    figure.update_layout(legend={"y": 1.02, "yanchor": "bottom"})  # above: narrow screens rotate the labels below
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category")
    return figure
