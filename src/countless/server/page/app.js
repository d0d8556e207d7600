// The page: chooses the view by the address, connects it to the feed, asks for a token, shows a lost connection.

import { budgetView } from "./budget.js";
import { budgetListView } from "./budgets.js";
import { counterView } from "./counter.js";
import { element, nameElement, setAttribute, setText } from "./dom.js";
import { follow } from "./feed.js";
import { moment, plural } from "./format.js";
import { helpView } from "./help.js";
import { listView } from "./list.js";
import { whyView } from "./why.js";

const TOKEN_KEY = "countless-token"; // in the session storage: for this tab, until it is closed
const HIDDEN_TIMEOUT_MS = 60000; // a tab that is hidden for this long closes its feed until it is visible again
const byId = (id) => document.getElementById(id);
const main = byId("main");
let view = null, stopFeed = () => {}, clockSkew = 0, hiddenTimer = null, closedWhileHidden = false;

const app = {
  now: () => Date.now() / 1000 + clockSkew, // by the coordinator's clock
  announce: (text) => setText(byId("announcement"), text),
  // The same view with another query: the address changes, the view stays.
  address(path, query) {
    const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
    history.replaceState(null, "", `#${path}${given.size ? `?${given}` : ""}`);
  },
  navigate(path, query) { app.address(path, query); connect(); },
};

function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

function showView() {
  const { path, query } = route();
  view?.close();
  if (path === "/why") view = whyView(app);
  else if (path === "/help") view = helpView(app);
  else if (path === "/budgets") view = budgetListView(app, query);
  else if (path.startsWith("/budget/")) view = budgetView(app, query, decodeName(path.slice(8)));
  else if (path.startsWith("/counter/")) view = counterView(app, query, decodeName(path.slice(9)));
  else view = listView(app, query);
  document.title = `${view.title} – Countless`;
  for (const link of document.querySelectorAll("[data-tab]")) {
    if (link.dataset.tab === view.tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(view.node);
  scrollTo(0, 0);
  connect();
}

function decodeName(name) {
  try { return decodeURIComponent(name); } catch { return name; }
}

function connect() {
  stopFeed();
  setAttribute(main, "data-stale", false);
  const path = view.feed();
  if (path === null) { stopFeed = () => {}; showConnection("none", ""); setText(byId("role"), ""); byId("stale").hidden = byId("refused").hidden = true; return; }
  showConnection("connecting", "Connecting");
  const mine = view;
  stopFeed = follow(path, sessionStorage.getItem(TOKEN_KEY), {
    event(name, data) {
      if (data.now) clockSkew = data.now - Date.now() / 1000;
      if (name === "hello") { showRole(data.role); showRefused(null); setText(byId("version"), `Countless ${data.version}`); }
      if (name === "refused") showRefused(data);
      mine.event(name, data);
    },
    live() { showConnection("live", "Live"); byId("stale").hidden = true; setAttribute(main, "data-stale", false); mine.stale?.(false); },
    stale(since, reason) {
      showConnection("stale", "Not connected");
      byId("stale").hidden = false;
      setText(byId("stale"), `Not connected since ${moment(since / 1000)}. The page shows what was known then. ` +
        `Reconnecting.${reason.startsWith("the coordinator") ? ` (${reason})` : ""}`);
      setAttribute(main, "data-stale", true);
      mine.stale?.(true);
    },
    unauthorized: askForToken,
  });
}

function showConnection(state, text) {
  setAttribute(byId("connection"), "data-state", state);
  setText(byId("connection"), text);
}

function showRole(role) {
  setText(byId("role"), role === "operator" ? "Operator view" : "Public view");
  byId("forget").hidden = sessionStorage.getItem(TOKEN_KEY) === null;
}

// For operators: sites that try to connect in vain appear nowhere else. An open list stays open.
const refusedFrom = element("b"), refusedList = element("ul");
byId("refused").append(
  element("p", {}, refusedFrom, " Make them a token with ", element("code", {}, "countless token create site --label fleet"), "."),
  element("details", {}, element("summary", {}, "Which"), refusedList));

function showRefused(data) {
  byId("refused").hidden = !data?.number;
  if (!data?.number) return;
  setText(refusedFrom, `▲ Sites are refused from ${plural(data.number, "address", "addresses")}: what they count is missing everywhere.`);
  refusedList.replaceChildren(...data.rows.map(([address, reason, attempts, last]) =>
    element("li", {}, nameElement(address), `: ${reason} (${plural(attempts, "attempt")}, the last at ${moment(last)})`)));
}

function askForToken() {
  const rejected = sessionStorage.getItem(TOKEN_KEY) !== null;
  sessionStorage.removeItem(TOKEN_KEY);
  showConnection("token", "Token needed");
  setText(byId("role"), "");
  byId("stale").hidden = byId("refused").hidden = byId("forget").hidden = true;
  const input = element("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "about-token" });
  const problem = element("p", { class: "wrong", role: "alert" }, rejected ? "This token is not valid here. Use a token of scope read or operator." : "");
  const form = element("form", { class: "token" }, element("h1", { tabindex: "-1" }, "Token"),
    element("p", { id: "about-token" }, "This coordinator shows its totals to holders of a token. The token is stored in this tab until you close it."),
    element("label", { for: "token" }, "Token"), input, element("button", { type: "submit" }, "Show the totals"), problem,
    element("p", { class: "note" }, "An operator creates one with ", element("code", {}, "countless token create read --label me"),
      "; the operator's own is in the file ", element("code", {}, "operator.token"), " of the state directory."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN_KEY, input.value.trim());
    showView();
  });
  view?.close();
  main.replaceChildren(form);
  input.focus();
}

byId("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
byId("forget").addEventListener("click", () => { sessionStorage.removeItem(TOKEN_KEY); showView(); });
addEventListener("hashchange", () => { showView(); view.heading.focus({ preventScroll: true }); });
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) hiddenTimer = setTimeout(() => { stopFeed(); closedWhileHidden = true; }, HIDDEN_TIMEOUT_MS);
  else if (closedWhileHidden) { closedWhileHidden = false; connect(); }
});
showView();
