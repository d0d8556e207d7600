// "51–100 of 10,000", with buttons for the previous and the next page.

import { element, setText } from "./dom.js";
import { count, plural } from "./format.js";

export const PAGE = 50; // rows; ROWS_PER_PAGE in server/http/page/views.py

export function pager(what, move) {
  const previous = element("button", { type: "button", onclick: () => move(-PAGE) }, "Previous");
  const next = element("button", { type: "button", onclick: () => move(PAGE) }, "Next");
  const where = element("span", { role: "status" });
  const node = element("nav", { class: "pager", "aria-label": `Pages of ${what}s` }, previous, where, next);
  return {
    node,
    // Templates are rows among budgets, and no budgets.
    set(start, shown, { found, all, found_templates: templates = 0, all_templates: others = 0 }) {
      previous.disabled = start === 0;
      next.disabled = start + shown >= found;
      previous.hidden = next.hidden = found <= PAGE && start === 0;
      const range = found > PAGE || start ? `${count(shown ? start + 1 : 0)}–${count(start + shown)} of ` : "";
      const filtered = found < all ? ` (${count(all - others)} in all)` : "";
      const rules = templates ? `, ${plural(templates, "template")}` : "";
      setText(where, `${range}${plural(found - templates, what)}${rules}${filtered}`);
    },
  };
}
