// Increase over time: one bar for each minute, hour, day or month, with its bounds; the text says what the chosen bar means.

import { hatching, numberTicks, textWidth } from "./axes.js";
import { Bars, barGroup, topValue } from "./bars.js";
import { element, setAttribute, setText, svgElement } from "./dom.js";
import { atLeast, count, duration, partly, plural, range } from "./format.js";
import { readable } from "./readout.js";
import { zone } from "./zone.js";

const HEIGHT = 230, FOOT = 26, HEAD = 10, CAP = 4, MIN_SLOTS = 24, LABEL_SPACE = 64;
const UNITS = { minute: "Minutes", hour: "Hours", day: "Days", month: "Months" };

export function increasesView(app, choose) {
  const heading = element("h2", {}), choice = element("div", { class: "ranges", role: "group", "aria-label": "Bars" });
  const bars = barGroup(), grid = svgElement("g", { class: "grid" }), labels = svgElement("g", { class: "labels" }), chosenBand = svgElement("rect", { class: "chosen" });
  const picture = svgElement("svg", { "aria-hidden": "true" }, hatching("hatching"), chosenBand, grid, bars.node, labels);
  const plot = element("div", { class: "bars-plot", tabindex: "0", role: "slider", "aria-label": "Increase", "aria-orientation": "horizontal" }, picture);
  const text = element("p", { class: "bars-text" }), note = element("p", { class: "note" }), table = barTable();
  const node = element("figure", { class: "increases", "aria-label": "Increase over time", hidden: true },
    element("div", { class: "chart-head" }, heading, choice), plot, text, note, table.node);
  let data = null, known = new Bars(), rows = [], chosen = null, place = null; // chosen: the start of a bar; null is the last
  const resized = new ResizeObserver(() => draw());
  resized.observe(plot);

  function show(event) {
    if (event.per !== data?.per) known = new Bars();
    data = event;
    known.update(event.first, event.rows);
    rows = known.rows;
    node.hidden = !rows.length;
    setText(heading, `Per ${data.per}`);
    choice.hidden = data.choices.length < 2;
    if (choice.children.length !== data.choices.length) {
      choice.replaceChildren(...data.choices.map((per) => element("button", { type: "button", "data-per": per, onclick: () => choose(per) }, UNITS[per])));
    }
    for (const button of choice.children) setAttribute(button, "aria-pressed", button.dataset.per === data.per);
    const since = rows[0]?.since;
    setText(note, since && since <= app.now() ? `Recorded since ${zone(data.tz).moment(since, app.now())} ${zone(data.tz).name}.` : `Times: ${zone(data.tz).name}.`);
    draw();
  }

  const index = () => (chosen === null ? rows.length - 1 : Math.max(0, rows.findIndex((row) => row.start === chosen)));

  function draw() {
    const width = plot.clientWidth;
    if (!rows.length || !width) return;
    const top = topValue(rows) * 1.04, ticks = numberTicks(0, top), left = textWidth(ticks.map((tick) => tick.text));
    const slot = (width - left) / Math.max(MIN_SLOTS, rows.length), first = width - slot * rows.length;
    const y = (value) => HEAD + (HEIGHT - HEAD - FOOT) * (1 - value / top);
    place = { first, slot };
    setAttribute(picture, "viewBox", `0 0 ${width} ${HEIGHT}`);
    grid.replaceChildren(...ticks.flatMap(({ value, text }) => [svgElement("path", { d: `M${left} ${y(value).toFixed(1)}H${width}` }),
      svgElement("text", { x: left - 8, y: (y(value) + 4).toFixed(1), "text-anchor": "end" }, text)]));
    labels.replaceChildren(...timeLabels(first, slot, width));
    bars.draw(rows, { left: first, slot, top, y, cap: Math.min(CAP, slot / 4) });
    explain();
    table.show(rows, data, app.now());
  }

  function timeLabels(first, slot, width) {
    const times = zone(data.tz);
    let last = -LABEL_SPACE;
    return rows.flatMap((row, at) => {
      const x = first + slot * (at + 0.5), label = tickText(row, data.per, times, rows.length);
      if (label === null || x < last + LABEL_SPACE || x > width - LABEL_SPACE / 3) return [];
      last = x;
      return [svgElement("text", { x: x.toFixed(1), y: HEIGHT - 8, "text-anchor": "middle" }, label)];
    });
  }

  // What the chosen bar means, in words: below the drawing, and for screen readers. While these read the value, it changes
  // only with the choice: counts change every second.
  function explain(chosenNow = false) {
    if (!place) return;
    const at = index(), row = rows[at];
    const words = `${when(row, data.per, zone(data.tz), app.now())}: ${howMany(row, zone(data.tz), app.now())}`;
    setText(text, words);
    for (const [name, value] of Object.entries({ "aria-valuemin": 1, "aria-valuemax": rows.length, "aria-valuenow": at + 1 })) setAttribute(plot, name, value);
    if (chosenNow || document.activeElement !== plot) setAttribute(plot, "aria-valuetext", words);
    setAttribute(chosenBand, "data-shown", chosen !== null);
    const sizes = { x: place.first + place.slot * at, width: place.slot, y: 0, height: HEIGHT - FOOT };
    for (const [name, value] of Object.entries(sizes)) setAttribute(chosenBand, name, value.toFixed(1));
  }

  function chooseBar(at) {
    const bounded = Math.min(rows.length - 1, Math.max(0, at));
    chosen = bounded === rows.length - 1 ? null : rows[bounded].start;
    explain(true);
  }

  readable(plot, {
    index: () => (place ? index() : null),
    at: (pixel) => Math.floor((pixel - place.first) / place.slot),
    choose: chooseBar,
  });
  return { node, show, tick: () => explain(), forget() { known = new Bars(); place = null; }, close: () => resized.disconnect() };
}

// A label below this bar; null if it has none.
function tickText({ start }, per, times, number) {
  const every = number <= 6, [hour, minute] = times.clock(start).split(":").map(Number);
  if (per === "minute") return every || minute % 10 === 0 ? times.clock(start) : null;
  if (per === "hour") return hour === 0 ? times.day(start) : every || hour % 6 === 0 ? times.clock(start) : null;
  if (per === "day") return every || times.date(start).startsWith("Mon") ? times.day(start) : null;
  return times.monthShort(start);
}

function when({ start, end }, per, times, now) {
  if (per === "month") return times.month(start);
  if (per === "day") return times.date(start) === times.date(now) ? "Today" : times.date(start);
  return per === "minute" ? times.moment(start, now) : `${times.moment(start, now)} to ${times.clock(end)}`;
}

function howMany(row, times, now) {
  const number = row.upper === null && row.lower === row.estimate ? range(row) : `${count(row.estimate)}${row.lower === row.upper ? "" : ` (${range(row)})`}`;
  const text = row.since === null ? number : partly(row, times, now).text, so = row.since === null ? " so far" : "";
  if (row.state === "open") return `${text}${so}, ends at ${times.moment(row.end, now)}, in ${duration(row.end - now)}`;
  return `${text}${certainty(row)}`;
}

function certainty({ lower, upper, state, since, waiting, lost }) {
  if (waiting) return `, incomplete: waiting for ${sites(waiting)}`;
  if (lost) return `, incomplete: ${sites(lost)} ended without a last count`;
  if (state === "incomplete") return ", incomplete: waiting for sites";
  return lower === upper && since === null ? ", exact" : "";
}

const sites = (number) => (number === true ? "sites" : plural(number, "site"));

// The same as a table, which is kept up to date while it is open.
function barTable() {
  const body = element("tbody"), lines = [];
  const head = element("thead", {}, element("tr", {}, ...["When", "Count", "From", "To", "State"].map((text, index) =>
    element("th", { scope: "col", class: index % 4 ? "number" : "" }, text))));
  const table = element("table", { class: "bar-table" }, element("caption", { class: "visually-hidden" }, "Increase over time"), head, body);
  const node = element("details", {}, element("summary", {}, "As a table"), table);
  let latest = null;
  node.addEventListener("toggle", () => latest && show(...latest));

  function show(rows, { per, tz }, now) {
    latest = [rows, { per, tz }, now];
    if (!node.open) return;
    while (lines.length < rows.length) lines.push(tableLine(body));
    for (const line of lines.splice(rows.length)) line.node.remove();
    rows.toReversed().forEach((row, index) => lines[index].set(row, per, zone(tz), now));
  }
  return { node, show };
}

function tableLine(body) {
  const time = element("th", { scope: "row" }), cells = ["number", "number", "number", ""].map((kind) => element("td", { class: kind }));
  const node = element("tr", {}, time, ...cells);
  body.append(node);
  return {
    node,
    set(row, per, times, now) {
      setText(time, when(row, per, times, now));
      const known = row.since === null, least = Math.ceil(row.lower), open = row.upper === null || !known;
      const state = known ? certainty(row).slice(2) : partly(row, times, now).text.split(";")[0];
      const texts = [known ? count(row.estimate) : least ? atLeast(least) : "–", count(least), open ? "?" : count(Math.floor(row.upper)), known && row.state === "open" ? "open" : state];
      texts.forEach((text, index) => setText(cells[index], text));
    },
  };
}
