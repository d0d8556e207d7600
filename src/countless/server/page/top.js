// Bars with whiskers, one below the other: each is full up to what is certain, with a whisker up to what may be.
// Of the largest labelled series of a counter, or labels of a family; and of the quantiles of a distribution.

import { element, nameElement, setAttribute, setText } from "./dom.js";
import { count, share, significant } from "./format.js";

// With `windowed`, of the present window of a counter with windows.
export function topView(counter, windowed = false) {
  const bars = barList(windowed ? "window-top" : "top", windowed ? "" : "By label", "Largest series", ["Labels", "Count", "At least", "At most", "Share"]);
  return {
    node: bars.node,
    show({ rows, all, estimate: total, epsilon, per }) {
      if (per) bars.title(`By label, this ${per}`);
      bars.show(rows.map(([name, estimate, lower, upper]) => ({
        name: name === counter ? "without labels" : name.slice(counter.length), link: `#/counter/${encodeURIComponent(name)}`, lower, upper,
        texts: [count(Math.round(estimate)), count(Math.floor(lower)), count(Math.ceil(upper)), share(total ? estimate / total : 0)],
      })));
      const known = epsilon ? `Each label is known to within ${share(epsilon)} of the total.` : "";
      const none = per && !rows.length ? `Nothing was counted this ${per} yet.` : "";
      const more = all > rows.length ? `${count(all - rows.length)} more ${epsilon ? "labels" : "series"} are smaller.` : "";
      bars.note([known, none, more].filter(Boolean).join(" "));
    },
  };
}

export function quantilesView() {
  const bars = barList("quantiles", "Quantiles", "Quantiles", ["Share of values below", "Value", "At least", "At most"]);
  return {
    node: bars.node,
    show({ rows, epsilon, accuracy }) {
      bars.show(rows.map(([q, estimate, lower, upper]) => ({
        name: q === 0.5 ? "50% (median)" : `${significant(100 * q)}%`, lower, upper: upper ?? lower, open: upper === null,
        texts: [significant(estimate), significant(lower), upper === null ? "?" : significant(upper)],
      })));
      const open = rows.some(([, , , upper]) => upper === null) ? " ?: values that are not reported yet may be larger than all known ones." : "";
      bars.note(rows.length ? `The rank is known to within ${share(epsilon)} of all values, the value to within ${share(accuracy)}.${open}` : "Nothing was observed.");
    },
  };
}

function barList(id, title, caption, columns) {
  const body = element("tbody"), rows = [], note = element("p", { class: "note" });
  const heads = [columns[0], "", ...columns.slice(1)].map((text, index) => element(text ? "th" : "td", { scope: text ? "col" : null, class: index > 1 ? "number" : "" }, text));
  const table = element("table", { class: "by-label" }, element("caption", { class: "visually-hidden" }, caption), element("thead", {}, element("tr", {}, ...heads)), body);
  const heading = element("h2", { id }, title);
  const node = element("section", { class: `${id}-section`, "aria-labelledby": id, hidden: true }, heading, table, note);
  return {
    node,
    show(shown) {
      node.hidden = false;
      table.hidden = !shown.length;
      const most = Math.max(...shown.map((row) => row.upper)) || 1;
      while (rows.length < shown.length) rows.push(barRow(body, columns.length - 1));
      for (const row of rows.splice(shown.length)) row.node.remove();
      shown.forEach((row, index) => rows[index].set(row, most));
    },
    title: (text) => setText(heading, text),
    note: (text) => setText(note, text),
  };
}

function barRow(body, numbers) {
  const head = element("th", { scope: "row" }), certain = element("span", { class: "certain" }), whisker = element("span", { class: "possible" });
  const bar = element("div", { class: "label-bar", "aria-hidden": "true" }, certain, whisker);
  const cells = Array.from({ length: numbers }, () => element("td", { class: "number" }));
  const node = element("tr", {}, head, element("td", { class: "bar-cell" }, bar), ...cells);
  body.append(node);
  let shown = null;
  return {
    node,
    set({ name, link, lower, upper, open = false, texts }, most) {
      if (name !== shown) {
        shown = name;
        head.replaceChildren(link ? element("a", { href: link }, nameElement(name)) : name);
      }
      certain.style.setProperty("--part", lower / most);
      whisker.style.setProperty("--part", (upper - lower) / most);
      setAttribute(whisker, "data-open", open);
      texts.forEach((text, index) => setText(cells[index], text));
    },
  };
}
