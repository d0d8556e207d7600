// All counters: a table with a sparkline for each, to search, to sort, to leaf through.

import { element, later, mark, named, say } from "./dom.js";
import { pager } from "./pager.js";
import { Series } from "./series.js";
import { sparkline } from "./spark.js";
import { badge } from "./state.js";
import { STATES, brief, count } from "./words.js";

const SPARK_POINTS = 48;
const SORTS = { name: "Name, A to Z", "-total": "Largest total", total: "Smallest total", state: "Worst state first" };

export function listView(app, query) {
  const rows = new Map(); // by name: what is on the screen, and nothing else
  const find = element("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false", maxlength: 200 });
  const sort = element("select", { id: "sort" });
  for (const [value, text] of Object.entries(SORTS)) sort.append(element("option", { value }, text));
  find.value = query.get("find") ?? "";
  sort.value = query.get("sort") in SORTS ? query.get("sort") : "name";
  let start = Number(query.get("start")) || 0;

  const ask = () => app.navigate("/", { find: find.value, sort: sort.value === "name" ? "" : sort.value, start: start || "" });
  const again = (from) => { start = from; ask(); };
  const typed = later(200, () => again(0));
  find.addEventListener("input", typed);
  sort.addEventListener("change", () => again(0));
  const pages = pager("counter", (step) => again(Math.max(0, start + step)));

  const heading = element("h1", { tabindex: "-1" }, "Counters");
  const summary = element("p", { class: "summary" });
  const body = element("tbody");
  const head = element("thead", {}, element("tr", {},
    ...["Counter", "Lately", "Total", "Range", "State"].map((text) => column(text)),
    ...["Sites", "Messages"].map((text) => column(text, "behind"))));
  const table = element("table", { class: "counters" }, element("caption", { class: "unseen" }, "Counters"), head, body);
  const empty = element("div", { class: "empty", hidden: true });
  const tools = element("form", { class: "tools", role: "search", onsubmit: (event) => event.preventDefault() },
    element("label", { for: "find" }, "Find"), find, element("label", { for: "sort" }, "Sort"), sort);
  const node = element("div", { class: "list" }, heading, summary, tools, empty, table, pages.node);

  function show(data) {
    const counts = Object.entries(STATES).filter(([state]) => data.states[state]);
    say(summary, counts.map(([state, { word }]) => `${count(data.states[state])} ${word.toLowerCase()}`).join(", "));
    pages.set(start, body.rows.length, data.found, data.all);
    table.hidden = !body.rows.length;
    tools.hidden = pages.node.hidden = !data.all;
    empty.hidden = body.rows.length > 0;
    if (!empty.hidden) empty.replaceChildren(...nothing(data, find.value));
  }

  function whole(data) {
    const focused = document.activeElement;
    const names = new Set(data.rows.map((row) => row.counter));
    for (const name of rows.keys()) if (!names.has(name)) rows.delete(name);
    for (const row of data.rows) {
      if (!rows.has(row.counter)) rows.set(row.counter, tableRow(row));
      rows.get(row.counter).set(row, data.now);
    }
    body.replaceChildren(...data.rows.map((row) => rows.get(row.counter).node));
    if (body.contains(focused)) focused.focus();
  }

  return {
    node, heading, title: "Counters", tab: "list",
    feed: () => `/page/feed?${new URLSearchParams({ find: find.value, sort: sort.value, start })}`,
    event(name, data) {
      if (name === "hello") mark(table, "data-face", data.face);
      if (name === "list") whole(data);
      if (name === "rows") for (const row of data.rows) rows.get(row.counter)?.set(row, data.now);
      if (name === "list" || name === "rows") show(data);
    },
    close: () => typed.cancel(),
  };
}

function column(text, kind = "") {
  return element("th", { scope: "col", class: `${kind} ${text.toLowerCase()}` }, text);
}

function tableRow({ counter, spark }) {
  const past = new Series(spark, SPARK_POINTS), line = sparkline(), state = badge();
  const kinds = ["total", "range", "sites behind", "messages behind"];
  const [total, range, sites, messages] = kinds.map((kind) => element("td", { class: kind }));
  const link = element("a", { href: `#/counter/${encodeURIComponent(counter)}` }, named(counter));
  const node = element("tr", {},
    element("th", { scope: "row", class: "counter" }, link), element("td", { class: "lately" }, line.node),
    total, range, element("td", { class: "state" }, state.node), sites, messages);
  return {
    node,
    set(row, now) {
      if (past.last?.[1] !== row.estimate) past.add([now, row.estimate]);
      line.draw(past.rows, now);
      say(total, count(row.estimate));
      say(range, row.state === "exact" ? "" : `${brief(row.lower)} – ${brief(row.upper)}`);
      state.set(row.state);
      mark(node, "data-state", row.state);
      if (row.sites === undefined) return;
      say(sites, row.silent ? `${count(row.sites)} (${count(row.silent)} silent)` : count(row.sites));
      say(messages, brief(row.messages));
    },
  };
}

function nothing(data, found) {
  if (data.all && found) return [element("p", {}, "No counter has ", named(found), " in its name.")];
  if (data.all) return [element("p", {}, "No counters here.")];
  return [
    element("p", {}, "Nothing is counted yet. Count something:"),
    element("pre", {}, "countless add requests 5"),
    element("p", {}, "A counter is there as soon as a site names it."),
  ];
}
