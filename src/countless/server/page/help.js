// Help: the signs, the words and the drawings of the page.

import { element } from "./dom.js";
import { BUDGET_STATES, STATES } from "./format.js";
import { WORDS } from "./words.js";

const DRAWINGS = {
  "Bar": "What was counted in a period. Pale: the period is not over. Hatched: sites have not delivered their last count of it.",
  "Line on a bar": "The truth is between its ends. Without an end at the top it may be more.",
  "Band around a line": "The truth is in it. Hatched, without an upper end: sites are silent or catching up, and may have counted more.",
  "Dashed upright line": "The coordinator started. It has no history of the time before; a page that was open has.",
  "Threshold": "Enter a number below the chart of a total: it says since when the total was possibly over it, and since when certainly.",
  "Faint lines and ticks": "For operators: new rounds, and phases of a round.",
};
const NAMES = { figure: "This hour, today", alpha: "Allowed error", delta: "Chance of a wrong answer", waiting: "Waiting for", "messages-so-far": "Messages so far",
  "next-day": "Next 24 hours", error: "Worst error", doubling: "Messages while it doubles" };

export function helpView() {
  const heading = element("h1", { tabindex: "-1" }, "Help");
  const states = (all) => Object.fromEntries(Object.values(all).map(({ sign, word, means }) => [`${sign} ${word === "Within bounds" ? "Within ±2%" : word}`, means]));
  const words = Object.fromEntries(Object.entries(WORDS).map(([key, means]) => [NAMES[key] ?? key[0].toUpperCase() + key.slice(1), means]));
  const node = element("div", { class: "help" }, heading,
    ...section("Signs of counters", { ...states(STATES), "≥ 1,234": "There is no upper bound: sites are silent or catching up." }), ...section("Signs of budgets", states(BUDGET_STATES)),
    ...section("Drawings", DRAWINGS), ...section("Words", words),
    element("h2", {}, "More"), element("p", {}, "The documentation is in the directory docs of the source; ", element("code", {}, "make docs"), " builds it, and this page is described in docs/operate/monitor.md. ",
      element("code", {}, "countless --help"), " lists the commands; ", element("code", {}, "countless doctor"), " looks for what is wrong. The HTTP API is described by ",
      element("a", { href: "/api/v1/openapi.json" }, "its OpenAPI document"), "."));
  return { node, heading, title: "Help", tab: "help", feed: () => null, event() {}, close() {} };
}

function section(title, entries) {
  return [element("h2", {}, title), element("dl", { class: "words" }, ...Object.entries(entries).map(([word, means]) => element("div", {}, element("dt", {}, word), element("dd", {}, means))))];
}
