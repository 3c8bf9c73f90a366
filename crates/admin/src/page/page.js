// Asks the API and hands what it says to the views: every five seconds, more rarely while the gateway
// is away, and not at all while nobody looks.

import { setText } from "./dom.js";
import * as views from "./views.js";
import { several } from "./words.js";

const EVERY_MS = 5000;
const SLOWEST_MS = 60000;
const PATIENCE_MS = 8000;
const DECISIONS = 20;
/** Where the token is kept: in this tab, until it is closed. */
const TOKEN = "kvasir-token";

const byId = (id) => document.getElementById(id);
const state = { timer: null, asking: null, failures: 0, paused: false, last: null, told: "" };

/** Why an answer is none. */
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// --- the token ---

// A browser may deny storage: the token lives as long as the page then.
let held = null;
function token() {
  try {
    return sessionStorage.getItem(TOKEN) ?? held;
  } catch {
    return held;
  }
}

function keep(value) {
  held = value;
  try {
    if (value === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, value);
  } catch {
    // It is held above.
  }
}

function signIn(why) {
  stop();
  byId("content").hidden = true;
  byId("pause").hidden = true;
  byId("forget").hidden = true;
  hideNotice();
  const form = byId("sign-in");
  const wasHidden = form.hidden;
  form.hidden = false;
  setText(byId("token-error"), why);
  setText(byId("pulse"), "Waiting for a token");
  if (wasHidden || why) byId("token").focus();
}

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = byId("token");
  const value = field.value.trim();
  // A header takes visible ASCII only.
  if (!/^[!-~]+$/.test(value)) {
    setText(byId("token-error"), "A token is visible ASCII characters without spaces.");
    field.focus();
    return;
  }
  field.value = "";
  keep(value);
  state.failures = 0;
  poll();
});

byId("forget").addEventListener("click", () => {
  keep(null);
  state.last = null;
  // What was read with the token is not left in the page.
  location.reload();
});

// --- asking ---

async function get(path, signal) {
  const shown = token();
  const headers = shown === null ? {} : { authorization: `Bearer ${shown}` };
  const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, body?.error?.message ?? `status ${answer.status}`);
  if (body === null) throw new Error(`the answer to ${path} is no JSON`);
  return body;
}

async function poll() {
  stop();
  const asking = new AbortController();
  state.asking = asking;
  const late = setTimeout(() => asking.abort(new Error("late")), PATIENCE_MS);
  try {
    const pool = byId("pool").value;
    const of = pool ? `model=${encodeURIComponent(pool)}` : "";
    // One first: where a token is asked for, it is asked for once.
    const pools = await get("/api/v1/pools", asking.signal);
    const [parity, timeline, decisions] = await Promise.all([
      get("/api/v1/parity", asking.signal),
      get(`/api/v1/timeline?${of}`, asking.signal),
      get(`/api/v1/decisions?limit=${DECISIONS}&${of}`, asking.signal),
    ]);
    if (state.asking !== asking) return;
    state.failures = 0;
    state.last = Date.now();
    show(pools.pools, parity.pools, timeline, decisions.decisions);
    next(EVERY_MS);
  } catch (error) {
    if (state.asking === asking) failed(error, asking.signal);
  } finally {
    clearTimeout(late);
    if (state.asking === asking) state.asking = null;
  }
}

function stop() {
  clearTimeout(state.timer);
  state.timer = null;
  const { asking } = state;
  state.asking = null;
  asking?.abort();
}

function next(afterMs) {
  if (state.paused || document.hidden) return;
  state.timer = setTimeout(poll, afterMs);
}

// --- showing ---

function show(pools, parity, timeline, decisions) {
  const found = parity.flatMap((pool) => pool.problems.map((problem) => ({ pool: pool.model, ...problem })));
  hideNotice();
  byId("sign-in").hidden = true;
  byId("content").hidden = false;
  byId("content").classList.remove("stale");
  byId("pause").hidden = false;
  byId("forget").hidden = token() === null;
  views.filter(pools);
  views.summary(pools, found, timeline);
  views.problems(found);
  views.fleet(pools);
  views.overTime(timeline);
  views.decisions(decisions);
  pulse();
  document.title = found.length > 0 ? `(${found.length}) Kvasir status` : "Kvasir status";
  const endpoints = pools.flatMap((pool) => pool.endpoints);
  const ready = endpoints.filter((one) => one.eligible).length;
  tell(`${ready} of ${several(endpoints.length, "endpoint", "endpoints")} available, ${several(found.length, "problem", "problems")}`);
}

function pulse() {
  const at = state.last === null ? "" : new Date(state.last).toLocaleTimeString("en-GB");
  setText(byId("pulse"), state.paused ? `Paused at ${at}` : `Live, read at ${at}`);
}

/** Read out to those who listen, and only where it is another thing than before. */
function tell(text) {
  if (state.told === text) return;
  state.told = text;
  setText(byId("quiet"), text);
}

function failed(error, signal) {
  if (error instanceof Refused && error.status === 401) {
    signIn(token() === null ? "" : `The gateway refused the token: ${error.message}.`);
    keep(null);
    return;
  }
  const afterMs = Math.min(SLOWEST_MS, EVERY_MS * 2 ** state.failures);
  state.failures += 1;
  byId("notice").hidden = false;
  // The cause is read out once, and not with every further try.
  setText(byId("notice-text"), causeOf(error, signal));
  setText(byId("notice-next"), nextTry(afterMs));
  byId("content").classList.add("stale");
  byId("sign-in").hidden = true;
  const at = state.last === null ? "nothing read yet" : `last read at ${new Date(state.last).toLocaleTimeString("en-GB")}`;
  setText(byId("pulse"), `Not live, ${at}`);
  state.told = "";
  next(afterMs);
}

function causeOf(error, signal) {
  if (error instanceof Refused) return `The gateway refused to answer (${error.status}): ${error.message}.`;
  if (signal.aborted) return `The gateway did not answer within ${PATIENCE_MS / 1000} s: it is overloaded, or the way to it is cut.`;
  if (error instanceof TypeError) return "The gateway cannot be reached: it is stopped, restarting, or the way to its admin port is cut.";
  return `What the gateway says cannot be shown: ${error.message}.`;
}

const nextTry = (afterMs) =>
  state.paused ? "Paused: no further try." : `Next try in ${afterMs / 1000} s.`;

function hideNotice() {
  byId("notice").hidden = true;
  setText(byId("notice-text"), "");
}

// --- what the reader does ---

byId("retry").addEventListener("click", poll);

byId("pause").addEventListener("click", () => {
  state.paused = !state.paused;
  byId("pause").setAttribute("aria-pressed", String(state.paused));
  if (state.paused) stop();
  else poll();
  if (state.failures === 0) pulse();
});

byId("pool").addEventListener("change", poll);
byId("values").addEventListener("toggle", views.redraw);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop();
  else if (!state.paused && byId("sign-in").hidden) poll();
});

let resized = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(views.redraw);
});

poll();
