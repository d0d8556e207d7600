// What operators see behind an answer: the numbers in force, what it has cost beside its rivals, and why this plan.

import { element, mark, say } from "./dom.js";
import { brief, bytes, count, moment, plural, share } from "./words.js";

export function behindView(app) {
  const list = facts(), cost = costTable(app), plan = planText();
  const node = element("div", { class: "behind-grid", hidden: true }, list.node, cost.node, plan.node);
  return {
    node,
    show(data) {
      list.show(data);
      cost.show(data.cost);
      plan.show(data);
    },
  };
}

function facts() {
  const names = ["Error allowed, alpha", "Ever wrong, delta", "Sites", "Scheme in force", "Round", "Phase"];
  const values = names.map(() => element("dd"));
  const list = element("dl", {}, ...names.map((name, index) => element("div", {}, element("dt", {}, name), values[index])));
  const node = element("section", { class: "facts", "aria-label": "In force" }, list);
  return {
    node,
    show(data) {
      const sites = data.silent ? `${count(data.sites)} (${count(data.silent)} silent)` : count(data.sites);
      const phase = data.phase === null ? "none" : count(data.phase + 1);
      const texts = [`± ${share(data.alpha)}`, `at most ${share(data.delta)}`, sites, data.scheme, count(data.round), phase];
      texts.forEach((text, index) => say(values[index], text));
    },
  };
}

function costTable(app) {
  const body = element("tbody"), since = element("p", { class: "note" }), next = element("p", {}), rows = new Map();
  const head = ["", "Messages", "", "Bytes"].map((text) => element(text ? "th" : "td", text ? { scope: "col" } : {}, text));
  const table = element("table", { class: "cost" }, element("thead", {}, element("tr", {}, ...head)), body);
  const heading = element("h2", { id: "cost" }, "What it has cost");
  const fine = element("p", { class: "note" }, "The others are worked out: the same events, the sites that were there, the smallest message that " +
    "could have carried them. A flush carries all counters of a process at once; where sites count many, it is cheaper than it looks here.");
  const node = element("section", { "aria-labelledby": "cost" }, heading, since, table, next, fine);

  function row(name, messages, size, most) {
    if (!rows.has(name)) {
      const cells = ["number", "bar", "number"].map((kind) => element("td", { class: kind }));
      cells[1].append(element("span"));
      const line = element("tr", name === "Countless" ? { class: "ours" } : {}, element("th", { scope: "row" }, name), ...cells);
      rows.set(name, cells);
      body.append(line);
    }
    const [number, bar, space] = rows.get(name);
    say(number, brief(messages));
    // On a scale of tens: between one message per event and ours there may be many of them.
    bar.firstChild.style.setProperty("--part", most > 1 ? Math.log10(1 + messages) / Math.log10(1 + most) : 0);
    say(space, bytes(size));
  }

  return {
    node,
    show(cost) {
      say(since, `${plural(cost.events, "event")} since ${moment(cost.since, app.now())}.`);
      say(next, `Until the total has doubled, about ${plural(cost.to_double, "message")} more, however long that takes.`);
      const most = Math.max(cost.messages, ...cost.others.map((other) => other.messages));
      row("Countless", cost.messages, cost.bytes, most);
      for (const other of cost.others) row(other.name[0].toUpperCase() + other.name.slice(1), other.messages, other.bytes, most);
    },
  };
}

function planText() {
  const why = element("p", { class: "why" }), prices = element("tbody"), reasons = element("dl", { class: "reasons" });
  const table = element("table", { class: "prices" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Scheme"),
      element("th", { scope: "col", class: "number" }, "Messages per e-fold"))), prices);
  const details = element("details", {}, element("summary", {}, "Every number of the plan"), reasons);
  const node = element("section", { "aria-labelledby": "plan" }, element("h2", { id: "plan" }, "Why this plan"), why, table, details);
  let told = "";
  return {
    node,
    show({ scheme, plan }) {
      const now = JSON.stringify([scheme, plan]);
      if (now === told) return; // plans change once in a round: an open list is left alone
      told = now;
      say(why, `${scheme}: ${plan.why[0].toLowerCase()}${plan.why.slice(1)}`);
      prices.replaceChildren(...plan.prices.map((price) => priceRow(price, scheme)));
      details.hidden = !plan.reasons.length;
      reasons.replaceChildren(...plan.reasons.flatMap((reason) => [
        element("dt", {}, `${reason.number.replaceAll("_", " ")} = ${brief(reason.value)}`), element("dd", {}, reason.because)]));
      mark(node, "data-scheme", scheme);
    },
  };
}

function priceRow({ scheme, messages_per_efold: price }, running) {
  const name = scheme === running ? `${scheme} (in force)` : scheme;
  return element("tr", { class: scheme === running ? "ours" : "" }, element("th", { scope: "row" }, name), element("td", { class: "number" }, count(price)));
}
