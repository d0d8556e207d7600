// What operators see of a counter: its parameters, its cost beside that of alternatives, and why this plan runs.

import { element, setAttribute, setText } from "./dom.js";
import { brief, bytes, count, duration, moment, plural, share } from "./format.js";
import { WORDS } from "./words.js";

export function operatorView(app) {
  const list = parameters(), cost = costTable(app), plan = planText();
  const node = element("div", { class: "operator-grid", hidden: true }, list.node, cost.node, plan.node);
  return {
    node,
    show(data) {
      list.show(data);
      cost.show(data.cost, data.windows);
      plan.show(data);
    },
  };
}

function parameters() {
  const names = { alpha: "Allowed error", delta: "Chance of a wrong answer", sites: "Sites", scheme: "Scheme", round: "Round", phase: "Phase", windows: "Windows", waiting: "Waiting for" };
  const values = Object.keys(names).map(() => element("dd"));
  const rows = Object.entries(names).map(([key, name], index) => element("div", {}, element("dt", { title: WORDS[key] }, name), values[index]));
  const list = element("dl", {}, ...rows);
  const node = element("section", { class: "parameters", "aria-label": "Parameters" }, list);
  return {
    node,
    show(data) {
      const sites = data.silent ? `${count(data.sites)} (${count(data.silent)} silent)` : count(data.sites);
      const phase = data.phase === null ? "none" : count(data.phase + 1);
      const texts = [`± ${share(data.alpha)}`, `at most ${share(data.delta)}`, sites, data.scheme, count(data.round), phase, ...windowTexts(data.windows)];
      texts.forEach((text, index) => { setText(values[index], text); rows[index].hidden = !text; });
    },
  };
}

// The rule, and the sites that windows which have ended wait for; empty texts are not shown.
function windowTexts(windows) {
  if (!windows) return ["", ""];
  const more = windows.waiting - windows.waiting_for.length;
  const sites = [...windows.waiting_for, ...(more ? [`${count(more)} more`] : [])].join(", ");
  return [`per ${windows.per} (${windows.tz}), ${count(windows.keep)} kept${windows.floor === null ? "" : `, floor ${count(windows.floor)}`}`, sites];
}

function costTable(app) {
  const body = element("tbody"), since = element("p", { class: "note" }), next = element("p", {}), rows = new Map();
  const columns = { "": "", "messages-so-far": "Messages so far", bar: "", "next-day": "Next 24 hours", age: "Age", error: "Worst error" };
  const head = Object.entries(columns).map(([key, text]) => element(text ? "th" : "td", { scope: text ? "col" : null, class: key, title: WORDS[key] }, text));
  const table = element("table", { class: "cost" }, element("thead", {}, element("tr", {}, ...head)), body);
  const heading = element("h2", { id: "cost" }, "What it costs");
  const note = element("p", { class: "note" }, "The alternatives are computed from the same events and sites, with the smallest message that has a counter's name and count. " +
    "A flush carries all counters of a process at once; where sites count many, it costs less than shown here. What it misses is by the average rate: in a burst it is more, without a bound.");
  const node = element("section", { class: "cost-section", "aria-labelledby": "cost" }, heading, since, table, next, note);

  function setRow(name, { messages, bytes: size, day, age, error }, most, bounded) {
    if (!rows.has(name)) {
      const cells = ["messages-so-far number", "bar", "next-day number", "age number", "error number"].map((kind) => element("td", { class: kind }));
      cells[1].append(element("span"));
      body.append(element("tr", bounded ? { class: "ours" } : {}, element("th", { scope: "row" }, name), ...cells));
      rows.set(name, cells);
    }
    const [number, bar, tomorrow, old, wrong] = rows.get(name);
    setText(number, `${brief(messages)} (${bytes(size)})`);
    bar.firstChild.style.setProperty("--part", most ? messages / most : 0);
    setText(tomorrow, brief(day));
    setText(old, age ? `up to ${duration(age)}` : "none");
    setText(wrong, bounded ? `± ${brief(Math.ceil(error))}` : error ? `about ${brief(Math.ceil(error))} missing` : "none");
  }

  return {
    node,
    show(cost, windows) {
      setText(since, `${plural(cost.events, "event")} since ${moment(cost.since, app.now())}.`);
      setText(next, `Until ${windows ? `the count of this ${windows.per}` : "the total"} doubles: about ${plural(cost.to_double, "message")} more, however long that takes.`);
      const most = Math.max(cost.messages, ...cost.others.map((other) => other.messages));
      setRow("Countless", { ...cost, age: 0 }, most, true);
      for (const other of cost.others) setRow(other.name[0].toUpperCase() + other.name.slice(1), other, most, false);
    },
  };
}

function planText() {
  const why = element("p", { class: "why" }), prices = element("tbody"), reasons = element("dl", { class: "reasons" });
  const table = element("table", { class: "prices" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Scheme"),
      element("th", { scope: "col", class: "number", title: WORDS.doubling }, "Messages while it doubles"))), prices);
  const details = element("details", {}, element("summary", {}, "All numbers of the plan"), reasons);
  const node = element("section", { "aria-labelledby": "plan" }, element("h2", { id: "plan" }, "Why this plan"), why, table, details);
  let shown = "";
  return {
    node,
    show({ scheme, plan }) {
      const now = JSON.stringify([scheme, plan]);
      if (now === shown) return; // plans change once in a round; an open list must not be rebuilt
      shown = now;
      setText(why, `${scheme}: ${plan.why[0].toLowerCase()}${plan.why.slice(1)}`);
      prices.replaceChildren(...plan.prices.map((price) => priceRow(price, scheme)));
      details.hidden = !plan.reasons.length;
      reasons.replaceChildren(...plan.reasons.flatMap((reason) => [
        element("dt", {}, `${reason.number.replaceAll("_", " ")} = ${brief(reason.value)}`), element("dd", {}, reason.because)]));
      setAttribute(node, "data-scheme", scheme);
    },
  };
}

function priceRow({ scheme, messages_per_efold: price }, running) {
  const name = scheme === running ? `${scheme} (running)` : scheme;
  return element("tr", { class: scheme === running ? "ours" : "" }, element("th", { scope: "row" }, name), element("td", { class: "number" }, count(price * Math.LN2)));
}
