// The state of an answer as a sign, a word and a colour.

import { element, setAttribute, setText } from "./dom.js";
import { STATES } from "./format.js";

export function badge() {
  const sign = element("span", { class: "sign", "aria-hidden": "true" }), word = element("span");
  const node = element("span", { class: "badge" }, sign, word);
  return {
    node,
    set(state) {
      setAttribute(node, "data-state", state);
      setText(sign, STATES[state].sign);
      setText(word, STATES[state].word);
    },
  };
}
