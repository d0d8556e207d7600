// The state of an answer: a sign, a word, a colour; and a sentence where there is room for one.

import { element, mark, say } from "./dom.js";
import { STATES } from "./words.js";

export function badge() {
  const sign = element("span", { class: "sign", "aria-hidden": "true" }), word = element("span");
  const node = element("span", { class: "badge" }, sign, word);
  return {
    node,
    set(state) {
      mark(node, "data-state", state);
      say(sign, STATES[state].sign);
      say(word, STATES[state].word);
    },
  };
}
