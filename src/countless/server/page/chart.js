// The total over time: a step line, and a band around it in which the truth is. Where sites are silent the band has no upper
// end and is hatched. Also starts of the coordinator, a threshold, and for operators rounds and phases.

import { hatching, numberTicks, textWidth, timeTicks } from "./axes.js";
import { element, setAttribute, setText, svgElement } from "./dom.js";
import { certain, count, moment, parseCount, range, stateWord, totalRange } from "./format.js";
import { readable } from "./readout.js";

// Close up starts where the total was five bands smaller, so that the band can be seen.
const RANGES = { "Close up": null, "5 minutes": 300, "1 hour": 3600, All: Infinity };
const DRAW_INTERVAL_MS = 1000, HEIGHT = 270, HEAD = 16, FOOT = 26, TICK_SPACE = 90;
const KEY = { line: "Answer", band: "The truth is in this range", doubt: "No upper bound: sites are silent, or catching up",
  restart: "The coordinator started", rounds: "New round", threshold: "Threshold" };

export function bandChart(app, query, overChanged) {
  const layers = Object.fromEntries(["band", "doubt", "rounds", "phases", "line", "cursor"].map((kind) => [kind, svgElement("path", { class: kind })]));
  const grid = svgElement("g", { class: "grid" }), labels = svgElement("g"), marks = svgElement("g"), dot = svgElement("circle", { class: "head", r: 4.5 });
  const picture = svgElement("svg", { "aria-hidden": "true" }, hatching("doubt"), grid, layers.band, layers.doubt, layers.rounds, layers.phases, labels, marks, layers.line, layers.cursor, dot);
  const plot = element("div", { class: "plot", tabindex: "0", role: "slider", "aria-label": "Total", "aria-orientation": "horizontal", "aria-valuemin": 1 }, picture);
  const text = element("p", { class: "plot-text" }), verdict = element("output", { class: "verdict-text", for: "over" });
  const choice = element("div", { class: "ranges", role: "group", "aria-label": "Time shown" });
  const input = element("input", { id: "over", inputmode: "numeric", autocomplete: "off", spellcheck: "false", maxlength: 40, placeholder: "1,000,000" });
  const threshold = element("form", { class: "threshold", onsubmit: (event) => event.preventDefault() }, element("label", { for: "over" }, "Threshold"), input, verdict);
  const key = element("ul", { class: "key", "aria-label": "Key" });
  const node = element("figure", { class: "chart", "aria-label": "Total over time" },
    element("div", { class: "chart-head" }, element("h2", {}, "Total"), choice), plot, text, key, threshold);
  let chosenRange = "Close up", rows = [], rounds = [], restarts = [], seen = [], place = null, chosen = null; // chosen: a time; null is the last one
  let timer = null, drawnAt = 0, frozen = null, closed = false, over = parseCount(query.get("over") ?? "");
  input.value = query.get("over") ?? "";

  for (const name of Object.keys(RANGES)) {
    choice.append(element("button", { type: "button", "aria-pressed": String(name === chosenRange), onclick: () => chooseRange(name) }, name));
  }

  function chooseRange(name) {
    chosenRange = name;
    chosen = null;
    for (const button of choice.children) setAttribute(button, "aria-pressed", button.textContent === name);
    draw();
  }

  input.addEventListener("input", () => {
    over = parseCount(input.value);
    setAttribute(input, "aria-invalid", over === null && input.value.trim() !== "");
    overChanged(over === null ? "" : input.value.trim());
    draw();
  });

  function schedule() {
    if (closed || timer || document.hidden) return;
    timer = setTimeout(draw, Math.max(0, DRAW_INTERVAL_MS - (Date.now() - drawnAt)));
  }

  function draw() {
    clearTimeout(timer);
    timer = null;
    const width = plot.clientWidth;
    if (closed || !rows.length || !width) return;
    drawnAt = Date.now();
    const now = frozen ?? app.now();
    seen = visible(rows, RANGES[chosenRange] === null ? closeUp(rows) : now - RANGES[chosenRange], now);
    const [low, high] = heights(seen, over), ticks = numberTicks(low, high), left = textWidth(ticks.map((tick) => tick.text));
    const from = seen[0][0], until = Math.max(from + 1, seen.at(-1)[0]);
    const x = (time) => left + (time - from) / (until - from) * (width - left - 6), y = (value) => HEAD + (HEIGHT - HEAD - FOOT) * (1 - (value - low) / (high - low));
    place = { x, y, left, from, until, width };
    setAttribute(picture, "viewBox", `0 0 ${width} ${HEIGHT}`);
    grid.replaceChildren(...ticks.flatMap((tick) => [svgElement("path", { d: `M${left} ${at(y(tick.value))}H${width}` }), label(left - 8, y(tick.value) + 4, tick.text, "end")]));
    labels.replaceChildren(...timeTicks(from, until, (width - left) / TICK_SPACE).filter((tick) => x(tick.value) > left + 16 && x(tick.value) < width - 24)
      .map((tick) => label(x(tick.value), HEIGHT - 8, tick.text)));
    setAttribute(layers.line, "d", stepPath(seen, x, y));
    setAttribute(layers.band, "d", bandPath(seen, (row) => certain(row[4]), x, (row) => y(edge(row, 2)), (row) => y(edge(row, 3))));
    setAttribute(layers.doubt, "d", bandPath(seen, (row) => !certain(row[4]), x, (row) => y(edge(row, 2)), () => HEAD));
    const inside = rounds.filter(([time]) => time > from && time <= until);
    const begun = inside.filter((row, index) => index && row[1] !== inside[index - 1][1]), phases = inside.filter((row, index) => row[2] > 0 && row[2] !== inside[index - 1]?.[2]);
    setAttribute(layers.rounds, "d", begun.map(([time]) => `M${at(x(time))} ${HEAD}V${HEIGHT - FOOT}`).join(""));
    setAttribute(layers.phases, "d", phases.map(([time]) => `M${at(x(time))} ${HEIGHT - FOOT}v-8`).join(""));
    const started = restarts.filter((time) => time > from - 5 && time <= until);
    marks.replaceChildren(...started.flatMap((time) => restartMark(x(Math.max(time, from)), width)), ...thresholdMarks(low, high));
    showKey({ line: true, band: true, doubt: seen.some((row) => !certain(row[4])), restart: started.length, rounds: begun.length, threshold: over !== null });
    explain();
    if (frozen === null) schedule(); // the line continues to now while nothing changes
  }

  // When the total was possibly, and certainly, over the threshold, as `watch` would have told.
  function thresholdMarks(low, high) {
    if (over === null) { setText(verdict, ""); return []; }
    const since = Object.entries({ possibly: 3, certainly: 2 }).map(([word, bound]) => ({ word, index: rows.findIndex((row) => edge(row, bound) > over) })).filter(({ index }) => index >= 0);
    const texts = since.map(({ word, index }) => `${word} over since ${index ? "" : "before "}${moment(rows[index][0], app.now())}`);
    setText(verdict, `${texts.join(", ") || "not reached"}.`);
    if (over < low || over > high) return [];
    const { x, y, left, from, until, width } = place, level = y(over);
    const times = since.filter(({ index }) => rows[index][0] >= from && rows[index][0] <= until);
    return [svgElement("path", { class: "threshold-line", d: `M${left} ${at(level)}H${width}` }),
      ...times.flatMap(({ word, index }) => [svgElement("path", { class: "threshold-mark", d: `M${at(x(rows[index][0]))} ${at(level - 7)}v14` }),
        label(x(rows[index][0]) + (word === "possibly" ? -5 : 5), level - 10, word, word === "possibly" ? "end" : "start")])];
  }

  function showKey(shown) {
    const kinds = Object.keys(KEY).filter((kind) => shown[kind]);
    if (key.dataset.kinds === kinds.join()) return;
    key.dataset.kinds = kinds.join();
    key.replaceChildren(...kinds.map((kind) => element("li", { class: `of-${kind}` }, KEY[kind])));
  }

  const index = () => (!place ? null : chosen === null ? seen.length - 1 : Math.max(0, seen.findLastIndex((row) => row[0] <= chosen)));

  // While a screen reader reads the value, it changes only with the choice.
  function explain(chosenNow = false) {
    const here = index(), row = seen[here], time = chosen ?? row[0], [, estimate, lower, upper, state] = row, answer = { estimate, lower, upper, state };
    const words = `${chosen === null && frozen === null ? "Now" : moment(chosen ?? frozen, app.now())}: ${certain(state) ? `${count(estimate)}${state === "exact" ? "" : ` (${range(totalRange(answer))})`}` : range(totalRange(answer))}, ${stateWord(answer).toLowerCase()}`;
    setText(text, words);
    setAttribute(plot, "aria-valuemax", seen.length);
    setAttribute(plot, "aria-valuenow", here + 1);
    if (chosenNow || document.activeElement !== plot) setAttribute(plot, "aria-valuetext", words);
    const across = at(place.x(Math.min(Math.max(time, place.from), place.until)));
    setAttribute(layers.cursor, "d", chosen === null ? "" : `M${across} ${HEAD}V${HEIGHT - FOOT}`);
    setAttribute(dot, "cx", across);
    setAttribute(dot, "cy", at(place.y(estimate)));
  }

  readable(plot, {
    index,
    at: (pixel) => seen.findLastIndex((row) => row[0] <= place.from + (pixel - place.left) / (place.width - place.left - 6) * (place.until - place.from)),
    choose(wanted) {
      const bounded = Math.min(seen.length - 1, Math.max(0, wanted));
      chosen = bounded === seen.length - 1 ? null : seen[bounded][0];
      explain(true);
    },
  });
  const resized = new ResizeObserver(draw), shown = () => schedule();
  resized.observe(plot);
  document.addEventListener("visibilitychange", shown);
  return {
    node, over: () => (over === null ? "" : input.value.trim()),
    show(points, roundMarks, starts) { rows = points; rounds = roundMarks; restarts = starts; schedule(); },
    freeze(is) { frozen = is ? (frozen ?? app.now()) : null; schedule(); },
    close() {
      closed = true;
      clearTimeout(timer);
      resized.disconnect();
      document.removeEventListener("visibilitychange", shown);
    },
  };
}

const at = (number) => number.toFixed(1);
const label = (x, y, text, anchor = "middle") => svgElement("text", { x: at(x), y: at(y), "text-anchor": anchor }, text);

// An exact answer has no band.
const edge = (row, bound) => (row[4] === "exact" ? row[1] : row[bound]);

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

// The least and the largest number shown; with the threshold, if that does not make the rest too small.
function heights(seen, over) {
  let low = Math.min(...seen.map((row) => edge(row, 2))), high = Math.max(...seen.map((row) => edge(row, 3)));
  const near = Math.max(1, high - low);
  if (over !== null && over > low - near && over < high + near) { low = Math.min(low, over); high = Math.max(high, over); }
  const room = Math.max((high - low) * 0.06, (seen.at(-1)[3] - seen.at(-1)[2]) / 2, 0.5);
  return [Math.max(0, low - room), high + room];
}

function stepPath(seen, x, y) {
  return seen.map((row, index) => (index ? `H${at(x(row[0]))}V${at(y(row[1]))}` : `M${at(x(row[0]))} ${at(y(row[1]))}`)).join("");
}

// The area between two edges, where `wanted(row)`: one piece for each stretch of such rows.
function bandPath(seen, wanted, x, bottom, top) {
  let path = "";
  for (let first = 0; first < seen.length - 1; first += 1) {
    if (!wanted(seen[first])) continue;
    let after = first;
    while (after < seen.length - 1 && wanted(seen[after])) after += 1;
    const stretch = seen.slice(first, after), end = (index) => at(x(seen[first + index + 1][0]));
    path += `M${at(x(stretch[0][0]))} ${at(bottom(stretch[0]))}${stretch.map((row, index) => `V${at(top(row))}H${end(index)}`).join("")}`;
    path += `${stretch.map((row, index) => [row, index]).reverse().map(([row, index]) => `V${at(bottom(row))}H${at(x(seen[first + index][0]))}`).join("")}Z`;
    first = after - 1;
  }
  return path;
}

function restartMark(x, width) {
  const right = x > width / 2;
  return [svgElement("path", { class: "restart", d: `M${at(x)} 4V${HEIGHT - FOOT}` }), label(x + (right ? -6 : 6), 13, "coordinator started", right ? "end" : "start")];
}
