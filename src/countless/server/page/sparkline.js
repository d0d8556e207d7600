// A sparkline: how a total has grown, as a small step line. Hidden from screen readers; the numbers stand beside it.

import { setAttribute, svgElement } from "./dom.js";

const WIDTH = 120, HEIGHT = 28, EDGE = 2;

export function sparkline() {
  const line = svgElement("path", { class: "spark-line" });
  const node = svgElement("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, line);
  return { node, draw: (rows, now) => setAttribute(line, "d", path(rows, now)) };
}

function path(rows, now) {
  if (!rows.length) return "";
  const from = rows[0][0], span = Math.max(1, now - from);
  const values = rows.map((row) => row[1]);
  const low = Math.min(...values), rise = Math.max(...values) - low;
  const x = (time) => (EDGE + (WIDTH - 2 * EDGE) * (time - from) / span).toFixed(1);
  const y = (value) => (rise ? HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (value - low) / rise : HEIGHT / 2).toFixed(1);
  let drawn = `M${x(from)} ${y(values[0])}`;
  for (const [time, value] of rows.slice(1)) drawn += `H${x(time)}V${y(value)}`;
  return `${drawn}H${x(now)}`;
}
