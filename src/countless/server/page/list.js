// All counters: a table with the rate, this hour, today and the total of each, which can be searched, sorted and paged.

import { badge } from "./badge.js";
import { Bars, miniBars } from "./bars.js";
import { debounce, element, nameElement, setAttribute, setText } from "./dom.js";
import { STATES, atLeast, brief, count, range, rateText, share, stateWord, totalRange } from "./format.js";
import { pager } from "./pager.js";
import { WORDS } from "./words.js";
import { zone } from "./zone.js";

const SORTS = { name: "Name, A to Z", "-total": "Largest total", total: "Smallest total", state: "Worst state first" };

export function listView(app, query) {
  const rows = new Map(); // by name: the rows on the screen
  const find = element("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false", maxlength: 200 });
  const sort = element("select", { id: "sort" });
  for (const [value, text] of Object.entries(SORTS)) sort.append(element("option", { value }, text));
  find.value = query.get("find") ?? "";
  sort.value = query.get("sort") in SORTS ? query.get("sort") : "name";
  let start = Number(query.get("start")) || 0;

  const ask = () => app.navigate("/", { find: find.value, sort: sort.value === "name" ? "" : sort.value, start: start || "" });
  const goTo = (from) => { start = from; ask(); };
  const typed = debounce(200, () => goTo(0));
  find.addEventListener("input", typed);
  sort.addEventListener("change", () => goTo(0));
  const pages = pager("counter", (step) => goTo(Math.max(0, start + step)));

  const heading = element("h1", { tabindex: "-1" }, "Counters");
  const summary = element("p", { class: "summary" });
  const body = element("tbody");
  const head = element("thead", {}, element("tr", {},
    ...["Counter", "Recent", "Rate", "This hour", "Today", "Total", "State"].map((text) => column(text)),
    ...["Sites", "Messages"].map((text) => column(text, "operator-only"))));
  const table = element("table", { class: "counters" }, element("caption", { class: "visually-hidden" }, "Counters"), head, body);
  const empty = element("div", { class: "empty", hidden: true });
  const tools = element("form", { class: "tools", role: "search", onsubmit: (event) => event.preventDefault() },
    element("label", { for: "find" }, "Find"), find, element("label", { for: "sort" }, "Sort"), sort);
  const node = element("div", { class: "list" }, heading, summary, tools, empty, table, pages.node);

  function show(data) {
    const counts = Object.entries(STATES).filter(([state]) => data.states[state]);
    setText(summary, counts.map(([state, { many }]) => `${count(data.states[state])} ${many}`).join(", "));
    pages.set(start, body.rows.length, data);
    table.hidden = !body.rows.length;
    tools.hidden = pages.node.hidden = !data.all;
    empty.hidden = body.rows.length > 0;
    if (!empty.hidden) empty.replaceChildren(...emptyText(data, find.value));
  }

  function replaceRows(data) {
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
      if (name === "hello") setAttribute(table, "data-role", data.role);
      if (name === "list") replaceRows(data);
      if (name === "rows") for (const row of data.rows) rows.get(row.counter)?.set(row, data.now);
      if (name === "list" || name === "rows") show(data);
    },
    close: () => typed.cancel(),
  };
}

function column(text, kind = "") {
  return element("th", { scope: "col", title: text === "Counter" ? null : WORDS[text.toLowerCase()] ?? WORDS.figure, class: `${kind} ${text.toLowerCase().replace(" ", "-")}` }, text);
}

function tableRow({ counter }) {
  const picture = miniBars(), state = badge(), per = element("small");
  let bars = new Bars(), shownPer = "";
  const [rate, hour, today, total] = ["rate", "this-hour", "today", "total"].map(numberCell);
  const [sites, messages] = ["sites", "messages"].map((kind) => element("td", { class: `${kind} operator-only` }));
  const link = element("a", { href: `#/counter/${encodeURIComponent(counter)}` }, nameElement(counter)), series = element("small", { class: "series" });
  const node = element("tr", {},
    element("th", { scope: "row", class: "counter" }, link, series), element("td", { class: "recent" }, picture.node, per),
    rate.node, hour.node, today.node, total.node, element("td", { class: "state" }, state.node), sites, messages);
  return {
    node,
    set(row, now) {
      const { number, unit } = rateText(row.rate, brief), times = zone(row.tz);
      if (shownPer !== row.per) bars = new Bars();
      shownPer = row.per;
      bars.update(row.first, row.bars);
      picture.draw(bars.rows);
      setText(per, `per ${row.per}`);
      rate.set(number, unit);
      for (const [cell, span] of [[hour, row["this-hour"]], [today, row.today], [total, { estimate: row.estimate, ...totalRange(row) }]]) {
        const open = span.upper === null || span.since; // no upper bound, or only a part is known
        cell.set(!open ? brief(span.estimate) : span.since && span.lower <= 0 ? "–" : atLeast(span.lower), small(span, times, now));
      }
      setText(series, row.series ? `sum of ${count(row.series)} series` : "");
      state.set(row.state, stateWord(row));
      setAttribute(node, "data-state", row.state);
      if (row.sites === undefined) return;
      setText(sites, row.silent ? `${count(row.sites)} (${count(row.silent)} silent)` : count(row.sites));
      setText(messages, brief(row.messages));
    },
  };
}

// A number with its bounds, or another remark, in small letters below it.
function numberCell(kind) {
  const value = element("b"), remark = element("small"), node = element("td", { class: `count ${kind}` }, value, " ", remark);
  return { node, set(number, text) { setText(value, number); setText(remark, text); } };
}

function small({ lower, estimate, upper, since }, times, now) {
  if (since) return `${since > now ? "from" : "unknown before"} ${times.minute(since, now)}`;
  if (upper === null) return "";
  const error = Math.max(upper - estimate, estimate - lower) / estimate;
  return lower === upper ? "" : error <= 0.2 ? `${error < 0.0001 ? "< " : ""}± ${share(Math.max(error, 0.0001))}` : range({ lower, upper }, brief);
}

function emptyText(data, found) {
  if (data.all && found) return [element("p", {}, "No counter has ", nameElement(found), " in its name.")];
  if (data.all) return [element("p", {}, "No counters here.")];
  return [
    element("p", {}, "Nothing is counted yet. Count something:"),
    element("pre", {}, "countless add requests 5"),
    element("p", {}, "A counter exists as soon as a site counts it."),
  ];
}
