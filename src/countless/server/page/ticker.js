// An animated number: it reaches a new value in half a second, or at once if the user prefers reduced motion.

import { setText } from "./dom.js";
import { count } from "./format.js";

const DURATION_MS = 500;
const still = matchMedia("(prefers-reduced-motion: reduce)");

export function ticker(node) {
  let shown = null, from = 0, goal = null, began = 0, frame = 0;
  const step = (now) => {
    const part = Math.min(1, Math.max(0, (now - began) / DURATION_MS));
    shown = from + (goal - from) * (1 - (1 - part) ** 3);
    setText(node, count(part < 1 ? Math.floor(shown) : goal));
    frame = part < 1 ? requestAnimationFrame(step) : 0;
  };
  return {
    set(value) {
      if (value === goal) return;
      goal = value;
      cancelAnimationFrame(frame);
      if (shown === null || still.matches || document.hidden) {
        shown = value;
        setText(node, count(value));
        return;
      }
      from = shown;
      began = performance.now();
      frame = requestAnimationFrame(step);
    },
    clear() { // the number is not known
      cancelAnimationFrame(frame);
      shown = goal = null;
      setText(node, "–");
    },
    stop: () => cancelAnimationFrame(frame),
  };
}
