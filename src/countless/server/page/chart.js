// The chart of one counter: the answer over time as a step line, its bounds as a band around it. Rounds are faint
// vertical lines, phases faint ticks at the bottom. plotly is loaded when it is first needed.

import { element, setText } from "./dom.js";
import { count, moment } from "./format.js";

// Close up starts where the total was five bands smaller, so that the band can be seen.
const RANGES = { "Close up": null, "5 minutes": 300, "1 hour": 3600, All: Infinity };
const DRAW_INTERVAL_MS = 1000;
const CONFIG = { displayModeBar: false, responsive: true };
let library = null;

export function charts() {
  library ??= load().catch(() => { library = null; return null; });
  return library;
}

async function load() {
  const found = await (await fetch("/page/charts")).json();
  if (!found) return null;
  for (const id of found.styles) document.head.append(element("template", { id }));
  await new Promise((done, failed) => {
    document.head.append(element("script", { src: found.script, onload: done, onerror: failed }));
  });
  return globalThis.Plotly;
}

export function bandChart(app) {
  const plot = element("div", { class: "plot" }), text = element("p", { class: "visually-hidden" });
  const note = element("p", { class: "plot-note" }, "Loading the chart.");
  const choice = element("div", { class: "ranges", role: "group", "aria-label": "Time shown" });
  const head = element("div", { class: "chart-head" }, element("h2", {}, "Total"), choice);
  const node = element("figure", { class: "chart", "aria-label": "Total over time" }, head, plot, note, text);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = "Close up", rows = [], marks = [], timer = null, drawnAt = 0, frozen = null, busy = false, closed = false, drawn = false;

  for (const range of Object.keys(RANGES)) {
    choice.append(element("button", { type: "button", "aria-pressed": String(range === chosen), onclick: () => choose(range) }, range));
  }

  function choose(range) {
    chosen = range;
    for (const button of choice.children) button.setAttribute("aria-pressed", String(button.textContent === range));
    schedule(0);
  }

  function schedule(wait = DRAW_INTERVAL_MS - (Date.now() - drawnAt)) {
    if (busy || closed || (timer && wait > 0)) return;
    clearTimeout(timer);
    timer = setTimeout(draw, Math.max(0, wait));
  }

  async function draw() {
    timer = null;
    busy = true; // until plotly is loaded; hundreds of answers may arrive meanwhile
    const plotly = await charts();
    busy = false;
    if (closed || node.hidden || !rows.length) return;
    if (!plotly) { setText(note, "Charts need plotly where the coordinator runs: pip install plotly"); return; }
    drawnAt = Date.now();
    const now = frozen ?? app.now();
    const seen = visible(rows, RANGES[chosen] === null ? closeUp(rows) : now - RANGES[chosen], now);
    note.hidden = true;
    plotly.react(plot, traces(seen, marks, now), layout(seen, now), CONFIG);
    drawn = true;
    setText(text, `From ${moment(seen[0][0])} to ${moment(now)}: from ${count(seen[0][1])} to ${count(seen.at(-1)[1])}.`);
    if (frozen === null && !document.hidden) schedule(DRAW_INTERVAL_MS); // the line continues to now while nothing changes
  }

  const repaint = () => schedule(0);
  dark.addEventListener("change", repaint);
  document.addEventListener("visibilitychange", repaint);
  return {
    node,
    show(points, rounds) { rows = points; marks = rounds; schedule(); },
    freeze(is) { frozen = is ? (frozen ?? app.now()) : null; schedule(); },
    close() {
      closed = true;
      clearTimeout(timer);
      dark.removeEventListener("change", repaint);
      document.removeEventListener("visibilitychange", repaint);
      if (drawn) globalThis.Plotly.purge(plot);
    },
  };
}

function closeUp(rows) {
  const [, estimate, lower, upper] = rows.at(-1);
  return (rows.findLast((row) => row[1] < estimate - 5 * (upper - lower)) ?? rows[0])[0];
}

// The points since a time; the level at that time is that of the last point before it.
function visible(rows, from, now) {
  const first = Math.max(0, rows.findLastIndex((row) => row[0] <= from));
  const [time, ...level] = rows[first];
  const seen = [[Math.max(time, from), ...level], ...rows.slice(first + 1)];
  return [...seen, [Math.max(now, seen.at(-1)[0]), ...seen.at(-1).slice(1)]];
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// plotly shows times in UTC; the page shows local time.
const local = (seconds) => (seconds - new Date(seconds * 1000).getTimezoneOffset() * 60) * 1000;

const clock = (seconds) => (seconds < 1800 ? "%H:%M:%S" : seconds < 172800 ? "%H:%M" : "%e %b");

// An exact answer has no band.
const edge = (row, bound) => (row[4] === "exact" ? row[1] : bound);

function span(seen) {
  const low = Math.min(...seen.map((row) => row[2])), high = Math.max(...seen.map((row) => row[3]));
  const room = Math.max((high - low) * 0.06, (seen.at(-1)[3] - seen.at(-1)[2]) / 2, 0.5);
  return [Math.max(0, low - room), high + room];
}

function traces(seen, marks, now) {
  const x = seen.map((row) => local(row[0])), [low, high] = span(seen);
  const band = { x, mode: "lines", hoverinfo: "skip", line: { shape: "hv", width: 0 } };
  const inside = marks.filter(([time]) => time > seen[0][0] && time <= now);
  const phases = inside.filter((row, index) => row[2] > 0 && row[2] !== inside[index - 1]?.[2]);
  const rounds = inside.filter((row, index) => index && row[1] !== inside[index - 1][1]);
  return [
    lines(rounds, low, high, colour("--round")),
    lines(phases, low, low + (high - low) * 0.035, colour("--phase")),
    { ...band, y: seen.map((row) => edge(row, row[2])) },
    { ...band, y: seen.map((row) => edge(row, row[3])), fill: "tonexty", fillcolor: colour("--band") },
    {
      x, y: seen.map((row) => row[1]), mode: "lines", line: { shape: "hv", width: 2, color: colour("--line") },
      customdata: seen.map((row) => `${count(row[1])}<br>${count(row[2])} – ${count(row[3])}<br>${row[4]}`),
      hovertemplate: "%{x|%H:%M:%S}<br>%{customdata}<extra></extra>",
    },
  ];
}

function lines(marks, low, high, color) {
  const x = marks.flatMap(([time]) => [local(time), local(time), null]);
  const y = marks.flatMap(() => [low, high, null]);
  return { x, y, mode: "lines", hoverinfo: "skip", line: { width: 1, color } };
}

function layout(seen, now) {
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--soft") };
  const [low, high] = span(seen);
  const axis = { fixedrange: true, showgrid: false, zeroline: false, ticks: "outside", ticklen: 6, tickcolor: "rgba(0,0,0,0)", automargin: true };
  return {
    font, showlegend: false, hovermode: "closest", autosize: true, margin: { l: 8, r: 8, t: 8, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--rule"), font: { ...font, color: colour("--ink") }, align: "left" },
    xaxis: { ...axis, type: "date", range: [local(seen[0][0]), local(now)], nticks: 6, tickformat: clock(now - seen[0][0]) },
    yaxis: { ...axis, range: [low, high], showgrid: true, gridcolor: colour("--rule"), tickformat: ",~s", nticks: 5, ...(high - low < 6 ? { dtick: 1 } : {}) },
  };
}
