// Axes of drawings: round numbers and round times, and how to write them.

import { svgElement } from "./dom.js";
import { brief, count } from "./format.js";

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

// Two to five round numbers from `low` to `high`, each with its text: long enough to tell neighbours apart.
export function numberTicks(low, high) {
  const height = high - low, power = 10 ** Math.floor(Math.log10(height / 2));
  const step = Math.max(1, [5, 2, 1].map((digit) => digit * power).find((size) => size * 2 <= height) ?? power);
  const first = Math.ceil(low / step), text = step * 200 < high ? count : brief;
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => (first + index) * step).map((value) => ({ value, text: text(value) }));
}

// Round times of the browser's clock, at most so many.
export function timeTicks(from, to, most) {
  const step = TIME_STEPS.find((size) => (to - from) / size <= most) ?? TIME_STEPS.at(-1);
  const offset = -60 * new Date(from * 1000).getTimezoneOffset(), ticks = [];
  const format = step < 60 ? seconds : step < 86400 ? minutes : days;
  for (let local = Math.ceil((from + offset) / step) * step; local - offset <= to; local += step) {
    ticks.push({ value: local - offset, text: format.format(new Date((local - offset) * 1000)) });
  }
  return ticks;
}

// What is not certain. The id must be unique in the document.
export function hatching(id) {
  return svgElement("defs", {}, svgElement("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svgElement("rect", { width: 6, height: 6, class: "hatching-paper" }), svgElement("rect", { width: 3, height: 6, class: "hatching-line" })));
}

export const textWidth = (texts) => 10 + 7.3 * Math.max(1, ...texts.map((text) => text.length));
