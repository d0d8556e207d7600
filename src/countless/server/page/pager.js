// "51 to 100 of 10,000", and the way to the pages before and after.

import { element, say } from "./dom.js";
import { count, plural } from "./words.js";

export const PAGE = 50; // rows, as the server sends them

export function pager(what, turn) {
  const back = element("button", { type: "button", onclick: () => turn(-PAGE) }, "Previous");
  const on = element("button", { type: "button", onclick: () => turn(PAGE) }, "Next");
  const where = element("span", { role: "status" });
  const node = element("nav", { class: "pager", "aria-label": `Pages of ${what}s` }, back, where, on);
  return {
    node,
    set(start, shown, found, all) {
      back.disabled = start === 0;
      on.disabled = start + shown >= found;
      back.hidden = on.hidden = found <= PAGE && start === 0;
      const range = found > PAGE || start ? `${count(shown ? start + 1 : 0)}–${count(start + shown)} of ` : "";
      const filtered = found < all ? ` (${count(all)} in all)` : "";
      say(where, `${range}${plural(found, what)}${filtered}`);
    },
  };
}
