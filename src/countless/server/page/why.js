// A recorded match: the same adversary against a classical tracker and against Countless, event by event.

import { element, setAttribute, setText, svgElement } from "./dom.js";
import { count } from "./format.js";

const WIDTH = 640, HEIGHT = 260, TOP = 5.3, FOOT = -2.2; // of the drawing; the error axis, in alphas
const DURATION_S = 20; // of the whole match

export function whyView() {
  const heading = element("h1", { tabindex: "-1" }, "Why trust this?");
  const stage = element("div", { class: "stage" });
  const node = element("div", { class: "why-page" }, heading, ...promise(), stage);
  let player = null, closed = false;
  fetch("/page/attack.json").then((response) => response.json()).then((match) => {
    if (closed) return;
    player = createPlayer(match);
    stage.replaceChildren(...player.nodes);
    player.start();
  }).catch(() => stage.replaceChildren(element("p", { class: "empty" }, "The recording could not be loaded. Reload the page.")));
  return { node, heading, title: "Why trust this?", tab: "why", feed: () => null, event() {}, close() { closed = true; player?.stop(); } };
}

function createPlayer(match) {
  const panels = match.contestants.map((contestant) => panel(contestant, match));
  const frames = match.contestants[0].frames.length;
  const scrub = element("input", { type: "range", min: 0, max: frames - 1, value: 0, id: "scrub", step: 1 });
  const play = element("button", { type: "button", class: "play" });
  const where = element("output", { for: "scrub", class: "where" });
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let at = 0, playing = false, then = 0, frame = 0;

  function show() {
    const index = Math.min(frames - 1, Math.floor(at));
    for (const each of panels) each.show(index);
    scrub.value = index;
    const events = Math.round((index + 1) * match.events / frames);
    setAttribute(scrub, "aria-valuetext", `${count(events)} events`);
    setText(where, `${count(events)} of ${count(match.events)} events`);
    setText(play, playing ? "Pause" : index === frames - 1 ? "Again" : "Play");
  }

  function step(now) {
    at = Math.min(frames - 1, at + (now - then) / 1000 * frames / DURATION_S);
    then = now;
    if (at >= frames - 1) playing = false;
    show();
    if (playing) frame = requestAnimationFrame(step);
  }

  function run(on) {
    playing = on;
    cancelAnimationFrame(frame);
    if (on && at >= frames - 1) at = 0;
    if (on) frame = requestAnimationFrame((now) => { then = now; step(now); });
    show();
  }

  play.addEventListener("click", () => run(!playing));
  scrub.addEventListener("input", () => { at = Number(scrub.value); run(false); });
  const controls = element("div", { class: "controls" }, play, element("label", { for: "scrub", class: "visually-hidden" }, "Moment of the match"), scrub, where);
  return {
    nodes: [...introduction(match), element("div", { class: "panels" }, ...panels.map((each) => each.node)), controls, footnote(match)],
    start() { if (still.matches) at = frames - 1; run(!still.matches); },
    stop: () => run(false),
  };
}

function promise() {
  return [element("p", { class: "lead" }, "Every number here has a range, and the truth is in it at every moment: not on average, and not only for traffic that knows nothing of these numbers. " +
    "Where it cannot be promised, because a site is silent or has just reconnected, the page says so: ≥ stands before the number, and its range has no upper end."),
  element("p", { class: "lead" }, "The bounds are proved; every proof has a number in design/claims.md and a test. The bars of closed windows are exact. What one site has, and when rounds begin, " +
    "is shown to operators only, because traffic that knows it could use it.")];
}

function introduction({ sites, alpha }) {
  return [element("h2", {}, "An attack, recorded"), element("p", { class: "lead" }, "Traffic that reacts to the answers can push a tracker out of its bounds. Here the adversary sends events to one site until the " +
    "published total changes, then never uses that site again, and continues with the next. It sees the answers and nothing else."),
    element("p", { class: "note" }, `${count(sites)} sites, allowed error ${alpha * 100}%. The line is the error of the answer ` +
      "in multiples of the allowed error. The shaded band is what is allowed.")];
}

function footnote({ seed }) {
  return element("p", { class: "note" }, `Recorded with seed ${seed}; every frame shows the largest error within it. Record it again with `,
    element("code", {}, "python -m countless_lab.arena.recording FILE"), ", or play your own match with ", element("code", {}, "countless lab attack"), ".");
}

function panel({ name, scheme, frames, left_at, worst }, { events }) {
  const x = (total) => total / events * WIDTH, y = (error) => (TOP - Math.max(FOOT, Math.min(TOP, error))) / (TOP - FOOT) * HEIGHT;
  const path = frames.map((frame, index) => `${index ? "L" : "M"}${x(frame[0]).toFixed(1)} ${y(frame[3]).toFixed(1)}`);
  const inside = svgElement("path", { class: "inside" }), outside = svgElement("path", { class: "outside" });
  const head = svgElement("circle", { r: 5, class: "head" });
  const labels = [[1, "+1"], [0, "0"], [-1, "−1"]].map(([error, text]) => svgElement("text", { x: 4, y: y(error) - 4 }, text));
  const picture = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img", "aria-label": `Error of ${name} over the match: worst ${worst} times the allowed error` },
    svgElement("rect", { class: "allowed", x: 0, width: WIDTH, y: y(1), height: y(-1) - y(1) }),
    svgElement("path", { class: "zero", d: `M0 ${y(0)}H${WIDTH}` }), ...labels, inside, outside, head);
  const verdict = element("p", { class: "verdict" }), numbers = element("p", { class: "note numbers" });
  const node = element("section", { class: "panel", "aria-label": name },
    element("h2", {}, name[0].toUpperCase() + name.slice(1), element("small", {}, ` ${scheme}`)), verdict, picture, numbers);
  const leaving = left_at === null ? Infinity : frames.findIndex((frame) => frame[0] >= left_at);
  return {
    node,
    show(index) {
      const [total, answer, messages, error] = frames[index];
      setAttribute(inside, "d", path.slice(0, Math.min(index, leaving) + 1).join(""));
      setAttribute(outside, "d", index > leaving ? `M${path.slice(leaving, index + 1).join("").slice(1)}` : "");
      setAttribute(head, "cx", x(total).toFixed(1));
      setAttribute(head, "cy", y(error).toFixed(1));
      const broken = index >= leaving;
      setAttribute(node, "data-broken", broken);
      const soFar = Math.max(...frames.slice(0, index + 1).map((frame) => Math.abs(frame[3])));
      setText(verdict, broken ? `▲ Left its band at event ${count(left_at)}. Worst: ${soFar.toFixed(1)}`
        : `● Inside its band. Worst: ${soFar.toFixed(1)}`);
      setText(numbers, `True total ${count(total)}, answer ${count(answer)}, ${count(messages)} messages.`);
    },
  };
}
