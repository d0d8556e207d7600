// What people ask first: the rate now, this hour, today; then the total. Each with its bounds.

import { element, setAttribute, setText } from "./dom.js";
import { certain, count, duration, partly, range, rateText, totalRange } from "./format.js";
import { WORDS } from "./words.js";
import { ticker } from "./ticker.js";
import { zone } from "./zone.js";

const NAMES = { "this-minute": "This minute", "this-hour": "This hour", today: "Today", "this-month": "This month", total: "Total" };

export function figuresView(app) {
  const number = element("output", { class: "rate", "aria-live": "off" }, "–"), unit = element("span", { class: "unit" }), over = element("p", { class: "range" });
  const list = element("dl", { class: "figures" }), figures = new Map();
  const hero = element("p", { class: "hero" }, number, " ", unit);
  const node = element("div", {}, hero, over, list);

  function set(name, value, bounds, isOpen, zoneName = "") {
    if (!figures.has(name)) figures.set(name, figure(list, name));
    figures.get(name).set(value, bounds, isOpen, zoneName);
  }

  return {
    node,
    showSpans({ rate, spans, tz }) {
      const text = rateText(rate), times = zone(tz);
      setText(number, text.number);
      setText(unit, text.unit);
      setText(over, `${text.range ? `${text.range}, ` : ""}over the last ${lasting(rate.over)}`);
      for (const span of spans) {
        const where = span.name === "this-hour" ? "" : times.name, known = span.since === null ? null : partly(span, times, app.now());
        if (known) set(span.name, known.least, known.text, known.least !== null, where);
        else set(span.name, span.upper === null ? Math.ceil(span.lower) : span.estimate, range(span), span.upper === null, where);
      }
    },
    showTotal(answer) { set("total", certain(answer.state) ? answer.estimate : Math.ceil(answer.lower), range(totalRange(answer)), !certain(answer.state)); },
    rate: () => `${number.textContent} ${unit.textContent}`,
    // "12.3 per second, this hour 40,210, today 1,203,400, total 9,400,210"
    text() { return [this.rate(), ...[...figures].map(([name, each]) => `${NAMES[name].toLowerCase()} ${each.text()}`)].join(", "); },
    close() { for (const each of figures.values()) each.stop(); },
  };
}

function figure(list, name) {
  const value = element("dd", { class: "value" }, "–"), bounds = element("dd", { class: "bounds" }), where = element("small");
  const node = element("div", { "data-figure": name }, element("dt", { title: WORDS[name] ?? WORDS.figure }, NAMES[name], where), value, bounds), animated = ticker(value);
  if (name === "total") list.append(node); else list.insertBefore(node, list.querySelector("[data-figure=total]"));
  let shown = 0;
  return {
    set(number, text, isOpen, zoneName) {
      setAttribute(node, "data-open", isOpen); // no upper bound: shown as ≥
      shown = number;
      if (number === null) animated.clear();
      else animated.set(number);
      setText(bounds, text);
      setText(where, zoneName ? ` (${zoneName})` : "");
    },
    text: () => (shown === null ? "unknown" : count(shown)),
    stop: animated.stop,
  };
}

const lasting = (seconds) => ({ 60: "minute", 3600: "hour", 86400: "day" })[seconds] ?? duration(seconds);
