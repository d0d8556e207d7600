// The largest labelled series of a counter: a bar for each, full up to what it has for certain, with a whisker up to what it may have.

import { element, nameElement, setAttribute, setText } from "./dom.js";
import { count, share } from "./format.js";

export function topView(counter) {
  const body = element("tbody"), rows = [], note = element("p", { class: "note" });
  const table = element("table", { class: "by-label" }, element("caption", { class: "visually-hidden" }, "Largest series"),
    element("thead", {}, element("tr", {}, ...["Labels", "", "Count", "At least", "At most", "Share"].map((text, index) => element("th", { scope: "col", class: index > 1 ? "number" : "" }, text)))), body);
  const node = element("section", { class: "by-label-section", "aria-labelledby": "top", hidden: true },
    element("h2", { id: "top" }, "By label"), table, note);

  return {
    node,
    show(data) {
      node.hidden = false;
      const most = Math.max(1, ...data.rows.map((row) => row[3]));
      while (rows.length < data.rows.length) rows.push(topRow(body, counter));
      for (const row of rows.splice(data.rows.length)) row.node.remove();
      data.rows.forEach((row, index) => rows[index].set(row, most, data.estimate));
      setText(note, data.all > data.rows.length ? `${count(data.all - data.rows.length)} more series are smaller.` : "");
    },
  };
}

function topRow(body, counter) {
  const link = element("a"), certain = element("span", { class: "certain" }), whisker = element("span", { class: "possible" });
  const bar = element("div", { class: "label-bar", "aria-hidden": "true" }, certain, whisker);
  const cells = Array.from({ length: 4 }, () => element("td", { class: "number" }));
  const node = element("tr", {}, element("th", { scope: "row" }, link), element("td", { class: "bar-cell" }, bar), ...cells);
  body.append(node);
  let shown = null;
  return {
    node,
    set([name, estimate, lower, upper], most, total) {
      if (name !== shown) {
        shown = name;
        link.replaceChildren(nameElement(name === counter ? "without labels" : name.slice(counter.length)));
        setAttribute(link, "href", `#/counter/${encodeURIComponent(name)}`);
      }
      certain.style.setProperty("--part", lower / most);
      whisker.style.setProperty("--part", (upper - lower) / most);
      [count(Math.round(estimate)), count(Math.floor(lower)), count(Math.ceil(upper)), share(total ? estimate / total : 0)].forEach((text, index) => setText(cells[index], text));
    },
  };
}
