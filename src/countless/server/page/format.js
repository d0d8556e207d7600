// Numbers, times and states as text.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const shortBelow = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3, roundingMode: "floor" });
const percent = new Intl.NumberFormat("en", { style: "percent", maximumSignificantDigits: 2 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const significant = (number) => digits.format(number);
export const count = (number) => whole.format(number);
export const brief = (number) => (number < 100000 ? whole.format(number) : short.format(number));
// A number that is at least this much.
export const atLeast = (number) => `≥ ${number < 100000 ? whole.format(Math.ceil(number)) : shortBelow.format(number)}`;
export const share = (number) => (number > 0 && number < 0.0001 ? "< 0.01%" : percent.format(number));
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// A range of whole numbers: the true count is in it. Without an upper bound, sites are silent, and may have counted more.
export function range({ lower, upper }, text = count) {
  if (upper === null) return `at least ${text(Math.ceil(lower))}`;
  return lower === upper ? "exact" : `${text(Math.ceil(lower))} to ${text(Math.floor(upper))}`;
}

// The range of a total: while a site is silent or has not reported yet, there is no upper bound.
export function totalRange({ estimate, lower, upper, state }) {
  if (state === "exact") return { lower: estimate, upper: estimate };
  return { lower, upper: state === "holding" ? upper : null };
}

// A count of which the beginning is not known: the least that is certain, and the range of the part that is known. A
// counter that has just got windows is known from the next one on.
export function partly({ lower, upper, since }, times, now) {
  const least = Math.ceil(lower), when = times.moment(since, now);
  if (since > now) return { least: null, text: `known from ${when} on` };
  return { least: least > 0 ? least : null, text: `unknown before ${when}; ${lower === upper ? count(least) : range({ lower, upper })} since` };
}

// A rate in the unit in which it is at least one: 0.05 per second is 3 per minute. If the bounds are further apart than
// the estimate is large, they are the number. A counter at rest has the rate 0, once less than one per second is possible.
const RATE_UNITS = { second: 1, minute: 60, hour: 3600, day: 86400 };
export function rateText({ lower, estimate, upper }, large = count) {
  const wide = upper !== null && upper - lower > estimate, shown = upper === null ? lower : wide ? upper : estimate;
  const [unit, seconds] = Object.entries(RATE_UNITS).find(([, seconds]) => shown * seconds >= 1) ?? (shown ? ["day", 86400] : ["second", 1]);
  const text = (rate) => (rate * seconds < 1000 ? digits.format(rate * seconds) : large(rate * seconds));
  if (upper === null) return { number: `≥ ${text(lower)}`, unit: `per ${unit}`, range: "" };
  if (wide && !estimate) return { number: upper < 1 ? "0" : "–", unit: "per second", range: `at most ${text(upper)} per ${unit}` };
  const number = !wide ? text(estimate) : lower ? `${text(lower)} to ${text(upper)}` : `≤ ${text(upper)}`;
  const bounds = wide || lower === upper ? "" : `${text(lower)} to ${text(upper)}`;
  return { number, unit: `per ${unit}`, range: bounds };
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let size = number, unit = 0;
  while (size >= 1000 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export function moment(seconds, now = Date.now() / 1000) {
  return (Math.abs(now - seconds) < 80000 ? clock : day).format(new Date(seconds * 1000));
}

export function duration(seconds) {
  if (seconds < 100) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

// To which time the limit of a budget belongs.
export const interval = ({ per, rolling }) => (per ? ` per ${per}` : rolling ? ` in every ${duration(rolling)}` : "");

// What is known of a budget's spending: a number, or the bounds of it.
export const spending = ({ lower, upper }) => (lower === upper ? count(lower) : `${count(lower)} – ${count(upper)}`);

// What happens to its units.
export const used = ({ kind, rolling }) => (kind === "in_flight" ? "in use" : rolling ? "taken" : "spent");

// Each state has a word, a sign and a colour, so that none is needed to tell states apart.
export const STATES = {
  exact: { word: "Exact", many: "exact", sign: "●", means: "Every event is reported: these counts are exact." },
  holding: { word: "Within bounds", many: "within bounds", sign: "◐", means: "The true counts are inside these ranges." },
  learning: { word: "Catching up", many: "catching up", sign: "◌", means: "Not all sites have reported their counts yet. Until then these are the last known counts: the true ones may be larger." },
  degraded: { word: "Sites missing", many: "with sites missing", sign: "▲", means: "At least one site is silent, or the coordinator cannot save. Counts since then are missing here: the true ones may be larger." },
};

// Whether the truth is for certain in the range.
export const certain = (state) => state === "exact" || state === "holding";

// "Within ±2%": how far the answer may be from the truth, rounded up to one digit.
export function stateWord({ state, estimate, lower, upper }) {
  const error = Math.max((upper - estimate) / upper, (estimate - lower) / lower);
  if (state !== "holding" || !(error > 0 && error <= 0.5)) return STATES[state].word;
  const least = Math.max(error * 0.999999, 0.0001), digit = 10 ** Math.floor(Math.log10(least));
  return `Within ±${share(Math.ceil(least / digit) * digit)}`;
}

// "1,500,000", "1.5M" or "20k" as a number; null if it is none.
export function parseCount(text) {
  const found = text.replaceAll(/[,_\s]/g, "").match(/^(\d+(?:\.\d+)?)([kMGB]?)$/);
  return found ? Math.round(Number(found[1]) * { "": 1, k: 1e3, M: 1e6, G: 1e9, B: 1e9 }[found[2]]) : null;
}

export const BUDGET_STATES = {
  open: { word: "Open", sign: "●", means: "Requests are admitted." },
  exhausted: { word: "Exhausted", sign: "■", means: "Nothing is left." },
  lowering: { word: "Lowering", sign: "◐", means: "The limit was lowered, or a site has overdrawn it. Nothing is granted until no more than the limit is granted." },
  resetting: { word: "Resetting", sign: "◌", means: "Nothing is granted until sites have reported what they spent before the reset." },
  restoring: { word: "Restoring", sign: "◌", means: "The state of the coordinator is an older copy. Nothing is granted until sites have told what they were granted since." },
  closed: { word: "Closed", sign: "✕", means: "The clock of the coordinator was ahead, and this period is over for it. Nothing of it is granted." },
};
