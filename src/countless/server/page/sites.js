// Who counts: a table of sites, a page at a time, so that ten thousand of them are as quick as ten.

import { element, later, mark, say } from "./dom.js";
import { pager } from "./pager.js";
import { count, duration, moment, share } from "./words.js";

const COLUMNS = { site: "Site", state: "State", heard: "Last heard", known: "Known count" };
const STATES = { connected: "● connected", away: "◌ away", silent: "▲ silent" };

export function sitesView(app, query, navigate) {
  let sort = query.get("sort") ?? "state", start = Number(query.get("start")) || 0;
  const find = element("input", { type: "search", id: "find-site", autocomplete: "off", spellcheck: "false", maxlength: 200 });
  find.value = query.get("find") ?? "";
  const body = element("tbody"), rows = [], left = element("p", { class: "note" });
  const ask = () => navigate({ find: find.value, sort: sort === "state" ? "" : sort, start: start || "" });
  const pages = pager("site", (step) => { start = Math.max(0, start + step); ask(); });
  const typed = later(200, () => { start = 0; ask(); });
  find.addEventListener("input", typed);

  const heads = Object.entries(COLUMNS).map(([key, text]) =>
    element("th", { scope: "col", class: key, "data-key": key }, element("button", { type: "button", onclick: () => turn(key) }, text)));
  const table = element("table", { class: "sites" }, element("caption", { class: "unseen" }, "Sites"),
    element("thead", {}, element("tr", {}, ...heads, element("th", { scope: "col", class: "share" }, "Share"))), body);
  const tools = element("form", { class: "tools", role: "search", onsubmit: (event) => event.preventDefault() },
    element("label", { for: "find-site" }, "Find"), find);
  const node = element("section", { class: "who", "aria-labelledby": "sites", hidden: true },
    element("h2", { id: "sites" }, "Sites"), tools, table, pages.node, left);

  function turn(key) {
    const first = { site: "site", state: "state", heard: "heard", known: "-known" }[key];
    sort = sort === first ? (first.startsWith("-") ? first.slice(1) : `-${first}`) : first;
    start = 0;
    ask();
  }

  return {
    node,
    asked: () => ({ find: find.value, sort, start }),
    close: () => typed.cancel(),
    show(data) {
      const now = app.now();
      while (rows.length < data.rows.length) rows.push(siteRow(body));
      for (const row of rows.splice(data.rows.length)) row.node.remove();
      data.rows.forEach((row, index) => rows[index].set(row, now));
      pages.set(data.start, data.rows.length, data.found, data.all);
      for (const head of heads) {
        const mine = sort.replace("-", "") === head.dataset.key;
        mark(head, "aria-sort", mine ? (sort.startsWith("-") ? "descending" : "ascending") : "none");
      }
      table.hidden = !data.rows.length;
      tools.hidden = !data.all;
      say(left, data.left.known ? `Sites that have gone brought ${count(data.left.known)}, ${share(data.left.share)} of the total known.` : "");
    },
  };
}

function siteRow(body) {
  const name = element("bdi", { class: "name" });
  const kinds = ["state", "heard", "known number", "share number"];
  const [state, heard, known, ofTotal] = kinds.map((kind) => element("td", { class: kind }));
  const node = element("tr", {}, element("th", { scope: "row", class: "site" }, name), state, heard, known, ofTotal);
  body.append(node);
  return {
    node,
    set([site, is, at, number, part], now) {
      say(name, site);
      mark(node, "data-state", is);
      say(state, STATES[is]);
      const ago = duration(now - at);
      say(heard, is === "connected" ? `${ago} ago` : `since ${moment(at, now)} (${ago})`);
      say(known, count(number));
      say(ofTotal, share(part));
    },
  };
}
