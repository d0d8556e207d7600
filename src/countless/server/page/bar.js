// A bar that fills: spent, granted to sites and not known to be spent, leaked, and what is free.

import { element, setAttribute } from "./dom.js";
import { count } from "./format.js";

const PARTS = ["spent", "granted", "leaked"];

// The units of each part. While a limit is being lowered, more than the limit may be granted.
export function parts({ limit, lower, upper, leaked }) {
  const granted = Math.max(0, upper - lower - leaked);
  return { spent: lower, granted, leaked, free: Math.max(0, limit - upper) };
}

export function usageBar() {
  const pieces = PARTS.map((part) => element("span", { class: part }));
  const node = element("div", { class: "usage", role: "img" }, ...pieces);
  return {
    node,
    set(budget) {
      const units = parts(budget), whole = Math.max(budget.limit, budget.upper);
      PARTS.forEach((part, index) => pieces[index].style.setProperty("--part", units[part] / whole));
      const texts = [...PARTS, "free"].filter((part) => units[part]).map((part) => `${count(units[part])} ${part}`);
      setAttribute(node, "aria-label", `${texts.join(", ")} of ${count(budget.limit)}`);
      setAttribute(node, "data-state", budget.state);
    },
  };
}
