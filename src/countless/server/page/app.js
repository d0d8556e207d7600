// The page: which view the address asks for, the feed behind it, the token, and whether what is shown is still true.

import { attackView } from "./attack.js";
import { counterView } from "./counter.js";
import { element, mark, say } from "./dom.js";
import { follow } from "./feed.js";
import { listView } from "./list.js";
import { moment } from "./words.js";

const KEEP = "countless-token"; // in the session storage: for this tab, until it is closed
const HIDDEN_FOR = 60000; // milliseconds: a tab that nobody sees lets go of its connection, and comes back when seen
const at = (id) => document.getElementById(id);
const main = at("main");
let view = null, stop = () => {}, skew = 0, resting = null;

const app = {
  now: () => Date.now() / 1000 + skew,
  speak: (text) => say(at("spoken"), text),
  // The same view with another question: the address says so, what is on the screen stays.
  navigate(path, query) {
    const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
    history.replaceState(null, "", `#${path}${asked.size ? `?${asked}` : ""}`);
    listen();
  },
};

function place() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

function open() {
  const { path, query } = place();
  view?.close();
  if (path === "/attack") view = attackView(app);
  else if (path.startsWith("/counter/")) view = counterView(app, query, readable(path.slice(9)));
  else view = listView(app, query);
  document.title = `${view.title} – Countless`;
  for (const link of document.querySelectorAll("[data-tab]")) {
    if (link.dataset.tab === view.tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(view.node);
  scrollTo(0, 0);
  listen();
}

function readable(name) {
  try { return decodeURIComponent(name); } catch { return name; }
}

function listen() {
  stop();
  mark(main, "data-stale", false);
  const path = view.feed();
  if (path === null) { stop = () => {}; connection("still", ""); say(at("face"), ""); at("stale").hidden = true; return; }
  connection("connecting", "Connecting");
  const mine = view;
  stop = follow(path, sessionStorage.getItem(KEEP), {
    event(name, data) {
      if (data.now) skew = data.now - Date.now() / 1000;
      if (name === "hello") face(data.face);
      mine.event(name, data);
    },
    live() { connection("live", "Live"); at("stale").hidden = true; mark(main, "data-stale", false); mine.stale?.(false); },
    stale(since, reason) {
      connection("stale", "Not connected");
      at("stale").hidden = false;
      say(at("stale"), `Not connected since ${moment(since / 1000)}. What you see is from then. ` +
        `Trying again.${reason.startsWith("the") ? ` (${reason})` : ""}`);
      mark(main, "data-stale", true);
      mine.stale?.(true);
    },
    refused: askForToken,
  });
}

function connection(state, text) {
  mark(at("connection"), "data-state", state);
  say(at("connection"), text);
}

function face(name) {
  say(at("face"), name === "operator" ? "Operator view" : "Public view");
  mark(document.body, "data-face", name);
  at("forget").hidden = sessionStorage.getItem(KEEP) === null;
}

function askForToken() {
  const had = sessionStorage.getItem(KEEP) !== null;
  sessionStorage.removeItem(KEEP);
  connection("token", "Token needed");
  say(at("face"), "");
  at("stale").hidden = at("forget").hidden = true;
  const input = element("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "about-token" });
  const wrong = element("p", { class: "wrong", role: "alert" }, had ? "That token does not open this page. A token of scope read or operator does." : "");
  const form = element("form", { class: "token" }, element("h1", { tabindex: "-1" }, "Token"),
    element("p", { id: "about-token" }, "This coordinator shows its totals to those with a token. It is kept in this tab and forgotten when you close it."),
    element("label", { for: "token" }, "Token"), input, element("button", { type: "submit" }, "Show the totals"), wrong,
    element("p", { class: "note" }, "An operator makes one with ", element("code", {}, "countless token read --label me"), "."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEEP, input.value.trim());
    open();
  });
  view?.close();
  main.replaceChildren(form);
  input.focus();
}

at("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
at("forget").addEventListener("click", () => { sessionStorage.removeItem(KEEP); open(); });
addEventListener("hashchange", () => { open(); view.heading.focus({ preventScroll: true }); });
document.addEventListener("visibilitychange", () => {
  clearTimeout(resting);
  if (document.hidden) resting = setTimeout(() => { stop(); resting = "resting"; }, HIDDEN_FOR);
  else if (resting === "resting") { resting = null; listen(); }
});
open();
