// All budgets: a table with a bar for each, which can be searched, sorted and paged.

import { badge } from "./badge.js";
import { usageBar } from "./bar.js";
import { debounce, element, nameElement, setAttribute, setText } from "./dom.js";
import { BUDGET_STATES, brief, count, duration, interval, spending, used } from "./format.js";
import { pager } from "./pager.js";

const SORTS = { name: "Name, A to Z", "-used": "Fullest first" };

export function budgetListView(app, query) {
  const rows = [], find = element("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false", maxlength: 200 });
  const sort = element("select", { id: "sort" });
  for (const [value, text] of Object.entries(SORTS)) sort.append(element("option", { value }, text));
  find.value = query.get("find") ?? "";
  sort.value = query.get("sort") in SORTS ? query.get("sort") : "name";
  let start = Number(query.get("start")) || 0;

  const ask = () => app.navigate("/budgets", { find: find.value, sort: sort.value === "name" ? "" : sort.value, start: start || "" });
  const goTo = (from) => { start = from; ask(); };
  const typed = debounce(200, () => goTo(0));
  find.addEventListener("input", typed);
  sort.addEventListener("change", () => goTo(0));
  const pages = pager("budget", (step) => goTo(Math.max(0, start + step)));

  const heading = element("h1", { tabindex: "-1" }, "Budgets"), body = element("tbody");
  const head = element("thead", {}, element("tr", {},
    ...["Budget", "Use", "Spent", "State", "Resets"].map((text) => element("th", { scope: "col", class: text.toLowerCase() }, text))));
  const table = element("table", { class: "budgets" }, element("caption", { class: "visually-hidden" }, "Budgets"), head, body);
  const empty = element("div", { class: "empty", hidden: true });
  const tools = element("form", { class: "tools", role: "search", onsubmit: (event) => event.preventDefault() },
    element("label", { for: "find" }, "Find"), find, element("label", { for: "sort" }, "Sort"), sort);
  const node = element("div", { class: "list" }, heading, tools, empty, table, pages.node);

  function show(data) {
    while (rows.length < data.rows.length) rows.push(tableRow(body));
    for (const row of rows.splice(data.rows.length)) row.node.remove();
    data.rows.forEach((row, index) => rows[index].set(row));
    pages.set(start, data.rows.length, data);
    table.hidden = !data.rows.length;
    tools.hidden = pages.node.hidden = !data.all;
    empty.hidden = data.rows.length > 0;
    if (!empty.hidden) empty.replaceChildren(...emptyText(data, find.value));
  }

  return {
    node, heading, title: "Budgets", tab: "budgets",
    feed: () => `/page/feed?${new URLSearchParams({ show: "budgets", find: find.value, sort: sort.value, start })}`,
    event(name, data) {
      if (name === "budgets") show(data);
      for (const row of rows) row.tick(app.now());
    },
    close: () => typed.cancel(),
  };
}

function tableRow(body) {
  const bar = usageBar(), state = badge(BUDGET_STATES), name = nameElement(""), link = element("a", {}, name);
  const [use, spent, states, resets] = ["use", "spent", "state", "resets"].map((kind) => element("td", { class: kind }));
  const names = element("span", { class: "note" });
  use.append(bar.node, names);
  states.append(state.node);
  const node = element("tr", {}, element("th", { scope: "row", class: "budget" }, link), use, spent, states, resets);
  body.append(node);
  let resetsAt = null;
  return {
    node,
    set(row) {
      const template = row.max_names !== null;
      setText(name, row.budget);
      setAttribute(link, "href", `#/budget/${encodeURIComponent(row.budget)}`);
      bar.node.hidden = state.node.hidden = template;
      bar.set(row);
      setText(names, template ? `${count(row.names)} of ${count(row.max_names)} names in use` : "");
      setText(spent, template ? `${brief(row.limit)}${interval(row)} for each name` : `${spending(row)} of ${brief(row.limit)}${row.kind === "in_flight" ? ` ${used(row)}` : row.rolling ? interval(row) : ""}`);
      state.set(row.state);
      resetsAt = template ? null : row.resets_at;
    },
    tick(now) {
      setText(resets, resetsAt === null ? "" : `in ${duration(resetsAt - now)}`);
    },
  };
}

function emptyText(data, found) {
  if (data.all && found) return [element("p", {}, "No budget has ", nameElement(found), " in its name.")];
  if (data.all) return [element("p", {}, "No budgets here.")];
  return [
    element("p", {}, "There are no budgets yet. Create one:"),
    element("pre", {}, "countless budget create acme/tokens --limit 1M --per month"),
    element("p", {}, "All sites together never spend more than its limit."),
  ];
}
