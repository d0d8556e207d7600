// One budget: how much of it is spent, granted and free, what is refused and why, when it resets; for operators, who holds it.

import { badge } from "./badge.js";
import { parts, usageBar } from "./bar.js";
import { element, nameElement, setAttribute, setText } from "./dom.js";
import { BUDGET_STATES, count, duration, interval, plural, share, spending, used } from "./format.js";
import { zone } from "./zone.js";

const LEGEND = { spent: "Spent", granted: "Granted, not reported as spent", leaked: "Leaked", free: "Free" };
const SITES = { connected: "● connected", away: "◌ away", silent: "▲ silent", gone: "✕ ended without a report" };

export function budgetView(app, query, name) {
  const heading = element("h1", { tabindex: "-1" }, nameElement(name));
  const spent = element("output", { class: "total", "aria-live": "off" }, "–"), limit = element("p", { class: "range" });
  const state = badge(BUDGET_STATES), means = element("span", { class: "means" }), resets = element("p", { class: "range" });
  const bar = usageBar(), legend = legendList(), holders = holderTable();
  const stateLine = element("p", { class: "state-line" }, state.node, means);
  const answer = element("section", { class: "answer", "aria-label": "Use", hidden: true },
    element("p", { class: "hero" }, spent), limit, stateLine, bar.node, legend.node, resets);
  const names = element("section", { class: "answer", "aria-label": "Names", hidden: true });
  const missing = element("div", { class: "empty", hidden: true },
    element("p", {}, "There is no budget ", nameElement(name), ". If it follows a template, it appears here when a site uses it."));
  const back = element("p", { class: "back" }, element("a", { href: "#/budgets" }, "All budgets"));
  const node = element("article", { class: "counter-page budget-page" }, back, heading, missing, answer, names, holders.node);
  let shown = null, role = null, announced = "";

  function show(data) {
    shown = data;
    const template = data.max_names !== null;
    missing.hidden = true;
    answer.hidden = template;
    names.hidden = !template;
    if (template) return showTemplate(data);
    setText(spent, spending(data));
    setText(limit, `of ${count(data.limit)}${interval(data)} ${used(data)}${data.template ? `, by the rule of ${data.template}` : ""}`);
    state.set(data.state);
    setText(means, why(data));
    setAttribute(answer, "data-state", data.state);
    bar.set(data);
    legend.set(parts(data), data.limit);
    document.title = `${share(data.upper / data.limit)} ${name} – Countless`;
    if (announced !== data.state) app.announce(`${count(data.lower)} of ${count(data.limit)} ${used(data)}, ${BUDGET_STATES[data.state].word.toLowerCase()}`);
    announced = data.state;
  }

  function showTemplate(data) {
    const prefix = name.slice(0, -1);
    names.replaceChildren(
      element("p", {}, `${count(data.limit)}${interval(data)} for each name that begins with `, nameElement(prefix), "."),
      element("p", {}, element("a", { href: `#/budgets?${new URLSearchParams({ find: prefix, sort: "-used" })}` },
        `${plural(data.names, "name")} of at most ${count(data.max_names)} in use`)));
  }

  function event(kind, data) {
    if (kind === "hello") role = data.role;
    if (kind === "no-budget") { shown = null; missing.hidden = false; answer.hidden = names.hidden = true; }
    if (kind === "budget") show(data);
    if (kind === "holders") holders.show(data);
    holders.node.hidden = role !== "operator" || shown === null || shown.max_names !== null;
    const at = shown?.resets_at ?? null;
    if (shown?.rolling) setText(resets, `Units come back ${duration(shown.rolling)} after they were taken. The bar shows what sites last reported.`);
    else setText(resets, at === null ? "" : `Resets at ${zone(shown.tz).moment(at, app.now())} ${zone(shown.tz).name}, in ${duration(at - app.now())}.`);
  }

  return {
    node, heading, event, title: name, tab: "budgets",
    feed: () => `/page/feed?${new URLSearchParams({ budget: name })}`,
    close() {},
  };
}

function why(data) {
  if (data.refused_from === null || !["open", "exhausted"].includes(data.state)) return BUDGET_STATES[data.state].means;
  const refused = `Requests of ${plural(data.refused_from, "unit")} or more are refused. `;
  if (data.state === "open") return `${refused}Less than that is left.`;
  return refused + (data.slack ? `No more than the slack of ${share(data.slack)} is left.` : "Nothing is left.");
}

function legendList() {
  const values = Object.fromEntries(Object.keys(LEGEND).map((part) => [part, element("dd")]));
  const node = element("dl", { class: "legend" },
    ...Object.entries(LEGEND).map(([part, text]) => element("div", { class: part }, element("dt", {}, text), values[part])));
  return {
    node,
    set(units, limit) {
      for (const part of Object.keys(LEGEND)) setText(values[part], `${count(units[part])} (${share(units[part] / limit)})`);
    },
  };
}

function holderTable() {
  const body = element("tbody"), rows = [], note = element("p", { class: "note" });
  const head = ["Site", "State", "Spent", "Held", "Granted, not reported", "Room", "Refuses"].map((text, index) =>
    element("th", { scope: "col", class: index > 1 ? "number" : "" }, text));
  const table = element("table", { class: "holders" }, element("caption", { class: "visually-hidden" }, "Sites that hold a part"),
    element("thead", {}, element("tr", {}, ...head)), body);
  const node = element("section", { class: "holders-section", "aria-labelledby": "holders", hidden: true },
    element("h2", { id: "holders" }, "Who holds it"), table, note);
  return {
    node,
    show(data) {
      while (rows.length < data.rows.length) rows.push(holderRow(body));
      for (const row of rows.splice(data.rows.length)) row.node.remove();
      data.rows.forEach((row, index) => rows[index].set(row));
      table.hidden = !data.rows.length;
      const more = data.all - data.rows.length;
      setText(note, more ? `and ${plural(more, "site")} that hold less` : data.all ? "" : "No site has asked for it in this period.");
    },
  };
}

function holderRow(body) {
  const name = element("bdi", { class: "name" }), state = element("td", { class: "state" });
  const cells = ["spent", "held", "room"].map((kind) => element("td", { class: `${kind} number` }));
  const lent = element("td", { class: "lent number" }), refuses = element("td", { class: "refuses number" });
  const node = element("tr", {}, element("th", { scope: "row", class: "site" }, name), state, ...cells, lent, refuses);
  body.append(node);
  return {
    node,
    set([site, is, spent, held, room, keeps, refusesFrom]) {
      setText(name, site);
      setAttribute(node, "data-state", is);
      setText(state, SITES[is]);
      [spent, held, room].forEach((number, index) => setText(cells[index], count(number)));
      setText(lent, keeps ? "lent" : is === "gone" ? "" : "asks each time");
      setText(refuses, refusesFrom === null ? "" : `${count(refusesFrom)} or more`);
    },
  };
}
