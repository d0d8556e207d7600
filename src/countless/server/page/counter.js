// One counter: the total that ticks, its range over time, its state; for operators, all that is behind it.

import { behindView } from "./behind.js";
import { bandChart } from "./chart.js";
import { element, mark, named, say } from "./dom.js";
import { ticker } from "./number.js";
import { Series } from "./series.js";
import { sitesView } from "./sites.js";
import { badge } from "./state.js";
import { STATES, count, plural } from "./words.js";

const SPOKEN_EVERY = 20000; // milliseconds: a screen reader should not be talked over

export function counterView(app, query, name) {
  const heading = element("h1", { tabindex: "-1" }, named(name));
  const total = element("output", { class: "total", "aria-live": "off" }, "–");
  const lower = element("b"), upper = element("b");
  const range = element("p", { class: "range" }, "between ", lower, " and ", upper);
  const state = badge(), means = element("span", { class: "means" });
  const chart = bandChart(app), big = ticker(total);
  const behind = behindView(app), sites = sitesView(app, query, (asked) => app.navigate(`/counter/${encodeURIComponent(name)}`, asked));
  const missing = element("div", { class: "empty", hidden: true },
    element("p", {}, "There is no counter ", named(name), ". As soon as a site counts it, it appears here."));
  const answer = element("section", { class: "answer", "aria-label": "Answer", hidden: true },
    element("p", { class: "hero" }, total), range, element("p", { class: "state-line" }, state.node, means));
  const back = element("p", { class: "back" }, element("a", { href: "#/" }, "All counters"));
  const node = element("article", { class: "counter-page" }, back, heading, missing, answer, chart.node, behind.node, sites.node);
  let points = new Series(), marks = new Series(), spokenAt = 0, spokenState = "";

  function show(data) {
    answer.hidden = false;
    big.set(data.estimate);
    range.hidden = data.state === "exact";
    say(lower, count(Math.ceil(data.lower)));
    say(upper, count(Math.floor(data.upper)));
    state.set(data.state);
    say(means, STATES[data.state].means);
    mark(answer, "data-state", data.state);
    document.title = `${count(data.estimate)} ${name} – Countless`;
    const changed = data.state !== spokenState;
    if (!changed && Date.now() - spokenAt < SPOKEN_EVERY) return;
    spokenAt = Date.now();
    spokenState = data.state;
    app.speak(`${count(data.estimate)}, ${STATES[data.state].word.toLowerCase()}`);
  }

  function event(kind, data) {
    if (kind === "hello") for (const part of [behind, sites]) part.node.hidden = data.face !== "operator";
    if (kind === "missing") { missing.hidden = false; answer.hidden = chart.node.hidden = true; behind.node.hidden = sites.node.hidden = true; }
    if (kind === "history") { missing.hidden = true; chart.node.hidden = false; points = new Series(data.points); marks = new Series(); }
    if (kind === "answer") { points.add([data.now, data.estimate, data.lower, data.upper, data.state]); show(data); }
    if (kind === "marks") for (const row of data.marks) marks.add(row);
    if (kind === "facts") {
      behind.show(data);
      if (data.silent) say(means, `${plural(data.silent, "site is", "sites are")} silent. What has not been delivered is missing here.`);
    }
    if (kind === "sites") sites.show(data);
    if (["history", "answer", "marks"].includes(kind)) chart.show(points.rows, marks.rows);
  }

  return {
    node, heading, event, title: name, tab: "list",
    feed: () => `/page/feed?${new URLSearchParams({ counter: name, ...sites.asked() })}`,
    stale: (is) => chart.freeze(is),
    close() { big.stop(); chart.close(); sites.close(); },
  };
}
