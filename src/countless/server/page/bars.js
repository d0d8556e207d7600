// Counts as bars with whiskers: the bar ends at the estimate, the whisker goes from the lower to the upper bound.

import { setAttribute, svgElement } from "./dom.js";

const MINI = { width: 120, height: 28, slots: 24, cap: 0 };

// Of a row in the feed. `since`: what was counted before that moment is not known. `waiting` and `lost` are numbers of
// sites; who may not see numbers gets true or false.
export function barRow([start, end, lower, estimate, upper, state, since = null, waiting = 0, lost = 0]) {
  return { start, end, lower, estimate, upper, state, since, waiting, lost };
}

// Bars by their start. Rows arrive when they have changed; those before `first` are not shown any more.
export class Bars {
  constructor() { this.byStart = new Map(); }

  get rows() { return [...this.byStart.values()].sort((a, b) => a.start - b.start); }

  update(first, rows) {
    for (const row of rows.map(barRow)) this.byStart.set(row.start, row);
    for (const start of this.byStart.keys()) if (start < first) this.byStart.delete(start);
  }
}

// The value at the top of the drawing. Whiskers that are much longer than all bars are cut off there.
export function topValue(rows) {
  const highest = Math.max(0, ...rows.map((row) => row.estimate)), most = Math.max(1, ...rows.map((row) => row.upper ?? row.estimate));
  return highest ? Math.min(most, 2 * highest) : most;
}

export function barGroup() {
  const node = svgElement("g", { class: "bar-group" }), pieces = [];
  return {
    node,
    // `left` and `slot` in pixels: where the first bar is, and how far it is to the next one.
    draw(rows, { left, slot, top, y, cap }) {
      while (pieces.length < rows.length) pieces.push(bar(node));
      for (const piece of pieces.splice(rows.length)) piece.node.remove();
      rows.forEach((row, index) => pieces[index].draw(row, left + slot * index, slot, top, y, cap));
    },
  };
}

function bar(group) {
  const box = svgElement("rect", { class: "box" }), whisker = svgElement("path", { class: "whisker" });
  const node = svgElement("g", {}, box, whisker);
  group.append(node);
  return {
    node,
    draw({ estimate, lower, upper, state, since }, left, slot, top, y, cap) {
      const gap = slot > 6 ? slot * 0.22 : 1, middle = (left + slot / 2).toFixed(1);
      const shown = Math.min(estimate, top), most = upper ?? estimate + top / 10; // without an upper bound: a little more
      const low = y(Math.min(lower, top)).toFixed(1), high = y(Math.min(most, top)).toFixed(1);
      setAttribute(node, "data-state", since === null ? state : "open");
      const sizes = { x: left + gap / 2, width: Math.max(1, slot - gap), y: y(shown), height: y(0) - y(shown) };
      for (const [name, value] of Object.entries(sizes)) setAttribute(box, name, value.toFixed(1));
      const ends = [low, ...(upper !== null && upper <= top ? [high] : [])].map((at) => `M${(middle - cap).toFixed(1)} ${at}h${2 * cap}`).join("");
      setAttribute(whisker, "d", low - high < 1 ? "" : `M${middle} ${low}V${high}${cap ? ends : ""}`);
    },
  };
}

// In a row of the list; hidden from screen readers, because the numbers stand beside it.
export function miniBars() {
  const { width, height, slots, cap } = MINI, bars = barGroup();
  const node = svgElement("svg", { class: "mini", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svgElement("path", { class: "ground", d: `M0 ${height - 0.5}H${width}` }), bars.node);
  return {
    node,
    draw(rows) {
      const shown = rows.slice(-slots), top = topValue(shown), slot = width / slots;
      const y = (value) => (height - 1) * (1 - value / top) + 0.5;
      // Where no bar is certainly above 0, whiskers as high as the drawing would look like traffic.
      bars.draw(shown.some((row) => row.lower > 0) ? shown : [], { left: width - slot * shown.length, slot, top, y, cap });
    },
  };
}
