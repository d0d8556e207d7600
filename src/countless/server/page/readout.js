// A drawing that is read out: the mouse, a finger or the arrow keys choose a place of it; its text is the caller's.

const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };

// `index()` is the chosen place, null while nothing is drawn; `at(x)` the one at a pixel; `choose(index)` may be out of bounds.
export function readable(plot, { index, at, choose }) {
  let pointed = false; // a choice of the arrow keys stays when the mouse leaves
  plot.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS) || index() === null) return;
    event.preventDefault();
    pointed = false;
    choose(index() + STEPS[event.key]);
  });
  const point = (event) => {
    if (index() === null) return;
    pointed = true;
    choose(at(event.clientX - plot.getBoundingClientRect().left));
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", (event) => { if (pointed && event.pointerType !== "touch") choose(Infinity); });
}
