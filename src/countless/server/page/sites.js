// The sites of a counter: a table, one page at a time, so that ten thousand sites are as quick as ten.

import { debounce, element, setAttribute, setText } from "./dom.js";
import { count, duration, moment, share } from "./format.js";
import { pager } from "./pager.js";

const COLUMNS = { site: "Site", state: "State", seen: "Last seen", known: "Known count" };
const STATES = { connected: "● connected", away: "◌ away", silent: "▲ silent" };

export function sitesView(app, query, navigate) {
  let sort = query.get("sort") ?? "state", start = Number(query.get("start")) || 0;
  const find = element("input", { type: "search", id: "find-site", autocomplete: "off", spellcheck: "false", maxlength: 200 });
  find.value = query.get("find") ?? "";
  const body = element("tbody"), rows = [], left = element("p", { class: "note" });
  const inAddress = () => ({ find: find.value, sort: sort === "state" ? "" : sort, start: start || "" });
  const ask = () => navigate(inAddress());
  const pages = pager("site", (step) => { start = Math.max(0, start + step); ask(); });
  const typed = debounce(200, () => { start = 0; ask(); });
  find.addEventListener("input", typed);

  const heads = Object.entries(COLUMNS).map(([key, text]) =>
    element("th", { scope: "col", class: key, "data-key": key }, element("button", { type: "button", onclick: () => sortBy(key) }, text)));
  const table = element("table", { class: "sites" }, element("caption", { class: "visually-hidden" }, "Sites"),
    element("thead", {}, element("tr", {}, ...heads, element("th", { scope: "col", class: "share" }, "Share"))), body);
  const tools = element("form", { class: "tools", role: "search", onsubmit: (event) => event.preventDefault() },
    element("label", { for: "find-site" }, "Find"), find);
  const heading = element("h2", { id: "sites" }, "Sites");
  const node = element("section", { class: "sites-section", "aria-labelledby": "sites", hidden: true },
    heading, tools, table, pages.node, left);

  function sortBy(key) {
    const first = { site: "site", state: "state", seen: "seen", known: "-known" }[key];
    sort = sort === first ? (first.startsWith("-") ? first.slice(1) : `-${first}`) : first;
    start = 0;
    ask();
  }

  return {
    node, inAddress,
    asked: () => ({ find: find.value, sort, start }),
    close: () => typed.cancel(),
    show(data) {
      const now = app.now();
      while (rows.length < data.rows.length) rows.push(siteRow(body));
      for (const row of rows.splice(data.rows.length)) row.node.remove();
      data.rows.forEach((row, index) => rows[index].set(row, now));
      pages.set(data.start, data.rows.length, data);
      for (const head of heads) {
        const mine = sort.replace("-", "") === head.dataset.key;
        setAttribute(head, "aria-sort", mine ? (sort.startsWith("-") ? "descending" : "ascending") : "none");
      }
      table.hidden = !data.rows.length;
      tools.hidden = !data.all;
      setText(heading, data.per ? `Sites in this ${data.per}` : "Sites");
      setText(left, data.left.known ? `Sites that left had counted ${count(data.left.known)}, ${share(data.left.share)} of ${data.per ? "it" : "the known total"}.` : "");
    },
  };
}

function siteRow(body) {
  const name = element("bdi", { class: "name" });
  const kinds = ["state", "last-seen", "known number", "share number"];
  const [state, lastSeen, known, ofTotal] = kinds.map((kind) => element("td", { class: kind }));
  const node = element("tr", {}, element("th", { scope: "row", class: "site" }, name), state, lastSeen, known, ofTotal);
  body.append(node);
  return {
    node,
    set([site, is, at, number, part], now) {
      setText(name, site);
      setAttribute(node, "data-state", is);
      setText(state, STATES[is]);
      const ago = duration(now - at);
      setText(lastSeen, is === "connected" ? `${ago} ago` : `since ${moment(at, now)} (${ago})`);
      setText(known, count(number));
      setText(ofTotal, share(part));
    },
  };
}
