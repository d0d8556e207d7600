// The state of an answer, or of a budget, as a sign, a word and a colour.

import { element, setAttribute, setText } from "./dom.js";
import { STATES } from "./format.js";

export function badge(states = STATES) {
  const sign = element("span", { class: "sign", "aria-hidden": "true" }), word = element("span");
  const node = element("span", { class: "badge" }, sign, word);
  return {
    node,
    set(state, text = states[state].word) {
      setAttribute(node, "data-state", state);
      setText(sign, states[state].sign);
      setText(word, text);
      setAttribute(node, "title", states[state].means);
    },
  };
}
