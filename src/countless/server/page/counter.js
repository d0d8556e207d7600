// One counter: its rate, this hour, today and its total; its increase over time; for operators also its cost, plan and sites.

import { badge } from "./badge.js";
import { bandChart } from "./chart.js";
import { element, nameElement, setAttribute, setText } from "./dom.js";
import { figuresView } from "./figures.js";
import { STATES, plural, stateWord } from "./format.js";
import { increasesView } from "./increases.js";
import { operatorView } from "./operator.js";
import { Series } from "./series.js";
import { sitesView } from "./sites.js";
import { quantilesView, topView } from "./top.js";

const ANNOUNCE_INTERVAL_MS = 20000; // for screen readers; a change of state is announced at once

export function counterView(app, query, name) {
  const path = `/counter/${encodeURIComponent(name)}`;
  const heading = element("h1", { tabindex: "-1" }, nameElement(name));
  const state = badge(), means = element("span", { class: "means" });
  const asChosen = { chosen: query.get("window") ?? "", choose: () => app.address(path, inAddress()) };
  const windowTop = topView(name, { windowed: true }), top = topView(name, asChosen), quantiles = quantilesView(asChosen), figures = figuresView(app), chart = bandChart(app, query, () => app.address(path, inAddress())), operator = operatorView(app);
  let per = query.get("bars") ?? "";
  const inAddress = () => ({ ...sites.inAddress(), bars: per, over: chart.over(), window: top.chosen() || quantiles.chosen() }), navigate = () => app.navigate(path, inAddress());
  const sites = sitesView(app, query, navigate);
  const increases = increasesView(app, (chosen) => { per = chosen; navigate(); });
  const elsewhere = element("p", { class: "note", hidden: true }, "Cost, plan and sites are on the page of each series.");
  const missing = element("div", { class: "empty", hidden: true },
    element("p", {}, "There is no counter ", nameElement(name), ". As soon as a site counts it, it appears here."));
  const answer = element("section", { class: "answer", "aria-label": "Answer", hidden: true },
    figures.node, element("p", { class: "state-line" }, state.node, means));
  const back = element("p", { class: "back" }, element("a", { href: "#/" }, "All counters"), ...linkToSum(name));
  const node = element("article", { class: "counter-page" }, back, heading, missing, answer, windowTop.node, top.node, quantiles.node, increases.node, chart.node, elsewhere, operator.node, sites.node);
  let points = new Series(), marks = new Series(), role = null, started = null, restarted = false, restarts = [], announcedAt = 0, announcedState = "";

  function showParts(exists) {
    missing.hidden = exists;
    chart.node.hidden = !exists;
    if (!exists) answer.hidden = windowTop.node.hidden = top.node.hidden = quantiles.node.hidden = increases.node.hidden = true; // shown with the first answer
    operator.node.hidden = sites.node.hidden = true; // shown with their events, which only operators get
  }

  function showAnswer(data) {
    answer.hidden = false;
    figures.showTotal(data);
    state.set(data.state, stateWord(data));
    setText(means, STATES[data.state].means);
    setAttribute(answer, "data-state", data.state);
    announce(data);
  }

  function announce(data) {
    const { state } = data;
    if ((state === announcedState && Date.now() - announcedAt < ANNOUNCE_INTERVAL_MS)) return;
    announcedAt = Date.now();
    announcedState = state;
    app.announce(`${figures.text()}, ${stateWord(data).toLowerCase()}`);
  }

  function event(kind, data) {
    if (kind === "hello") {
      role = data.role;
      restarted = started !== null && data.started !== started;
      started = data.started;
      restarts = [...restarts.filter((time) => time !== started), started];
    }
    if (kind === "missing") showParts(false);
    if (kind === "history") { showParts(true); increases.forget(); points = new Series([...(restarted ? before(points.rows, data.points) : []), ...data.points]); marks = new Series(); }
    if (kind === "answer") { points.add([data.now, data.estimate, data.lower, data.upper, data.state]); showAnswer(data); }
    if (kind === "top") { top.show(data); elsewhere.hidden = role !== "operator" || data.epsilon !== undefined; operator.node.hidden = sites.node.hidden = true; }
    if (kind === "window-top") windowTop.show(data);
    if (kind === "quantiles") quantiles.show(data);
    if (kind === "spans") { figures.showSpans(data); document.title = `${figures.rate()} ${name} – Countless`; }
    if (kind === "bars") increases.show(data); else increases.tick();
    if (kind === "marks") for (const row of data.marks) marks.add(row);
    if (kind === "details") {
      operator.show(data);
      operator.node.hidden = false;
      if (data.silent) setText(means, `${plural(data.silent, "site is", "sites are")} silent. Counts that ${data.silent === 1 ? "it" : "they"} did not deliver are missing here: the true ones may be larger.`);
    }
    if (kind === "sites") { sites.show(data); sites.node.hidden = false; }
    if (["history", "answer", "marks"].includes(kind)) chart.show(points.rows, marks.rows, restarts);
  }

  return {
    node, heading, event, title: name, tab: "list",
    feed: () => `/page/feed?${new URLSearchParams({ counter: name, ...sites.asked(), bars: per })}`,
    stale: (is) => chart.freeze(is),
    close() { figures.close(); increases.close(); chart.close(); sites.close(); },
  };
}

// The coordinator has no history of the time before its start, but an open page has. A counter that has less now was deleted.
function before(rows, since) {
  return since.length && rows.length && rows.at(-1)[1] <= since[0][1] ? rows.filter((row) => row[0] < since[0][0]) : [];
}

// A labelled series is a part of its counter, which has a page with the largest of them.
function linkToSum(name) {
  const counter = name.endsWith("}") ? name.split("{")[0] : "";
  return counter ? [" · ", element("a", { href: `#/counter/${encodeURIComponent(counter)}` }, "All of ", nameElement(counter))] : [];
}
