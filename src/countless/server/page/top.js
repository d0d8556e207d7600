// Bars with whiskers, one below the other: each is full up to what is certain, with a whisker up to what may be.
// Of the largest labelled series of a counter, or labels of a family; and of the quantiles of a distribution.

import { element, nameElement, setAttribute, setText } from "./dom.js";
import { count, share, significant } from "./format.js";

// With `windowed`, of the present window of a counter with windows. `chosen`: the window of a family that is shown first.
export function topView(counter, { windowed = false, chosen = "", choose } = {}) {
  const bars = barList(windowed ? "window-top" : "top", windowed ? "" : "By label", "Largest series", ["Labels", "Count", "At least", "At most", "Share"]);
  const choice = windowChoice(bars, chosen, choose, show);
  function show({ epsilon, per, windows }, { rows, all, estimate: total }, which) {
    if (per && !windows) bars.title(`By label, this ${per}`);
    bars.show(rows.map(([name, estimate, lower, upper]) => ({
      name: name === counter ? "without labels" : name.slice(counter.length), link: `#/counter/${encodeURIComponent(name)}`, lower, upper,
      texts: [count(Math.round(estimate)), count(Math.floor(lower)), count(Math.ceil(upper)), share(total ? estimate / total : 0)],
    })));
    const known = epsilon ? `Each label is known to within ${share(epsilon)} of the total${windows ? " of a window" : ""}.` : "";
    const none = per && !rows.length ? nothing("counted", which, per) : "";
    const more = all > rows.length ? `${count(all - rows.length)} more ${epsilon ? "labels" : "series"} are smaller.` : "";
    bars.note([known, none, more].filter(Boolean).join(" "));
  }
  return { node: bars.node, chosen: choice.chosen, show: choice.show };
}

export function quantilesView({ chosen = "", choose } = {}) {
  const bars = barList("quantiles", "Quantiles", "Quantiles", ["Share of values below", "Value", "At least", "At most"]);
  const choice = windowChoice(bars, chosen, choose, show);
  function show({ epsilon, accuracy, per }, { rows }, which) {
    bars.show(rows.map(([q, estimate, lower, upper]) => ({
      name: q === 0.5 ? "50% (median)" : `${significant(100 * q)}%`, lower, upper: upper ?? lower, open: upper === null,
      texts: [significant(estimate), significant(lower), upper === null ? "?" : significant(upper)],
    })));
    const open = rows.some(([, , , upper]) => upper === null) ? " ?: values that are not reported yet may be larger than all known ones." : "";
    const none = per ? nothing("observed", which, per) : "Nothing was observed.";
    bars.note(rows.length ? `The rank is known to within ${share(epsilon)} of all values, the value to within ${share(accuracy)}.${open}` : none);
  }
  return { node: bars.node, chosen: choice.chosen, show: choice.show };
}

function nothing(done, which, per) {
  return which === "total" ? `Nothing was ${done}.` : which === "last" ? `Nothing was ${done} in the last ${per}.` : `Nothing was ${done} this ${per} yet.`;
}

// Of a family or a distribution with windows: the present window, the last one, or all that was ever counted. `show` gets
// the data of the event, the part of it that was chosen, and which that is.
function windowChoice(bars, chosen, choose, show) {
  let data = null, which = chosen;
  const buttons = Object.fromEntries(["now", "last", "total"].map((name) => [name, element("button", { type: "button", onclick: () => { which = name; draw(); choose(); } })]));
  bars.choice.append(...Object.values(buttons));
  function draw() {
    const { windows, per } = data, shown = buttons[which] ? which : "now";
    bars.choice.hidden = !windows;
    if (!windows) return show(data, data, "now");
    Object.entries({ now: `This ${per}`, last: `Last ${per}`, total: "Total" }).forEach(([name, text]) => {
      setText(buttons[name], text);
      setAttribute(buttons[name], "aria-pressed", name === shown);
    });
    return show(data, windows[shown] ?? data, shown);
  }
  return { chosen: () => which, show(received) { data = received; draw(); } };
}

function barList(id, title, caption, columns) {
  const body = element("tbody"), rows = [], note = element("p", { class: "note" });
  const heads = [columns[0], "", ...columns.slice(1)].map((text, index) => element(text ? "th" : "td", { scope: text ? "col" : null, class: index > 1 ? "number" : "" }, text));
  const table = element("table", { class: "by-label" }, element("caption", { class: "visually-hidden" }, caption), element("thead", {}, element("tr", {}, ...heads)), body);
  const heading = element("h2", { id }, title), choice = element("div", { class: "ranges", role: "group", "aria-label": "Window", hidden: true });
  const node = element("section", { class: `${id}-section`, "aria-labelledby": id, hidden: true }, heading, choice, table, note);
  return {
    node, choice,
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
