// A recorded match: one adversary against the old tracker and against ours, event for event. Nothing here is live.

import { drawing, element, mark, say } from "./dom.js";
import { count } from "./words.js";

const WIDTH = 640, HEIGHT = 260, TOP = 5.3, FOOT = -2.2; // the drawing, and from where to where in alphas
const SECONDS = 20; // from the first event to the last

export function attackView() {
  const heading = element("h1", { tabindex: "-1" }, "Attack");
  const stage = element("div", { class: "stage" });
  const node = element("div", { class: "attack" }, heading, stage);
  let film = null, closed = false;
  fetch("/page/attack.json").then((response) => response.json()).then((match) => {
    if (closed) return;
    film = screen(match);
    stage.replaceChildren(...film.nodes);
    film.start();
  }).catch(() => stage.replaceChildren(element("p", { class: "empty" }, "The recording could not be fetched. Load the page again.")));
  return { node, heading, title: "Attack", tab: "attack", feed: () => null, event() {}, close() { closed = true; film?.stop(); } };
}

function screen(match) {
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
    mark(scrub, "aria-valuetext", `${count(events)} events`);
    say(where, `${count(events)} of ${count(match.events)} events`);
    say(play, playing ? "Pause" : index === frames - 1 ? "Again" : "Play");
  }

  function step(now) {
    at = Math.min(frames - 1, at + (now - then) / 1000 * frames / SECONDS);
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
  const controls = element("div", { class: "controls" }, play, element("label", { for: "scrub", class: "unseen" }, "Moment of the match"), scrub, where);
  return {
    nodes: [...introduction(match), element("div", { class: "panels" }, ...panels.map((each) => each.node)), controls, colophon(match)],
    start() { if (still.matches) at = frames - 1; run(!still.matches); },
    stop: () => run(false),
  };
}

function introduction({ sites, alpha }) {
  return [element("p", { class: "lead" }, "Traffic that watches the answer can lead a tracker astray. Here it feeds one site until the " +
    "published total moves, leaves that site for good at that very event, and goes on to the next. It sees the answers and nothing else."),
    element("p", { class: "note" }, `${count(sites)} sites, error allowed ${alpha * 100}%. Drawn is the error of the ` +
      "answer, in units of what is allowed. The shaded band is the promise.")];
}

function colophon({ seed }) {
  return element("p", { class: "note" }, `A recording, from seed ${seed}; every frame shows the worst moment in it. Record it again with `,
    element("code", {}, "python -m countless.lab.arena.recording FILE"), ", or play your own match with ", element("code", {}, "countless attack"), ".");
}

function panel({ name, scheme, frames, left_at, worst }, { events }) {
  const x = (total) => total / events * WIDTH, y = (error) => (TOP - Math.max(FOOT, Math.min(TOP, error))) / (TOP - FOOT) * HEIGHT;
  const path = frames.map((frame, index) => `${index ? "L" : "M"}${x(frame[0]).toFixed(1)} ${y(frame[3]).toFixed(1)}`);
  const inside = drawing("path", { class: "inside" }), outside = drawing("path", { class: "outside" });
  const head = drawing("circle", { r: 5, class: "head" });
  const labels = [[1, "+1"], [0, "0"], [-1, "−1"]].map(([error, text]) => drawing("text", { x: 4, y: y(error) - 4 }, text));
  const picture = drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img", "aria-label": `Error of ${name} over the match: worst ${worst} times what is allowed` },
    drawing("rect", { class: "promise", x: 0, width: WIDTH, y: y(1), height: y(-1) - y(1) }),
    drawing("path", { class: "zero", d: `M0 ${y(0)}H${WIDTH}` }), ...labels, inside, outside, head);
  const verdict = element("p", { class: "verdict" }), numbers = element("p", { class: "note numbers" });
  const node = element("section", { class: "panel", "aria-label": name },
    element("h2", {}, name[0].toUpperCase() + name.slice(1), element("small", {}, ` ${scheme}`)), verdict, picture, numbers);
  const leaving = left_at === null ? Infinity : frames.findIndex((frame) => frame[0] >= left_at);
  return {
    node,
    show(index) {
      const [total, answer, messages, error] = frames[index];
      mark(inside, "d", path.slice(0, Math.min(index, leaving) + 1).join(""));
      mark(outside, "d", index > leaving ? `M${path.slice(leaving, index + 1).join("").slice(1)}` : "");
      mark(head, "cx", x(total).toFixed(1));
      mark(head, "cy", y(error).toFixed(1));
      const broken = index >= leaving;
      mark(node, "data-broken", broken);
      const soFar = Math.max(...frames.slice(0, index + 1).map((frame) => Math.abs(frame[3])));
      say(verdict, broken ? `▲ Left its band at event ${count(left_at)}. Worst: ${soFar.toFixed(1)}`
        : `● Inside its band. Worst: ${soFar.toFixed(1)}`);
      say(numbers, `True total ${count(total)}, answer ${count(answer)}, ${count(messages)} messages.`);
    },
  };
}
