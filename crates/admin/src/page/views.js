// What each part of the page shows of the API's answers.

import { bar, el, fill, row, setProse, setText, sync, table } from "./dom.js";
import { chart } from "./chart.js";
import * as words from "./words.js";

const byId = (id) => document.getElementById(id);

/** A word with a sign of its own, so that no colour is needed to tell it. */
function mark(cell, kind, text, ...more) {
  const sign = { good: "●", warn: "◐", bad: "▲", idle: "○" }[kind];
  const head = fill(cell, `${sign} ${text}`, ...more);
  const classes = `mark ${kind}`;
  if (head.className !== classes) head.className = classes;
}

// --- at a glance ---

export function summary(pools, problems, timeline) {
  const endpoints = pools.flatMap((pool) => pool.endpoints);
  const ready = endpoints.filter((one) => one.eligible).length;
  const totals = sums(timeline.steps);
  const latest = timeline.steps.at(-1);
  const isNew = latest && timeline.now_unix_s - latest.start_unix_s < 60;
  const times = (isNew && latest.first_data_ms) || null;
  const flight = endpoints.reduce((sum, one) => sum + one.in_flight, 0);
  const queued = endpoints.reduce((sum, one) => sum + one.queued_prefill_tokens, 0);
  const items = [
    ["Endpoints available", `${ready} of ${endpoints.length}`, words.several(pools.length, "pool", "pools")],
    ["Problems", words.count(problems.length), problems.length ? "see below" : "none found"],
    ["In flight", words.count(flight), `${words.short(queued)} prompt tokens queued`],
    ["Prompt tokens cached", words.percent(totals.reportedShare ?? totals.predictedShare), cachedNote(totals)],
    ["Time to first data", words.duration(times?.p50), times ? `median; 95th ${words.duration(times.p95)}` : "no request in the last minute"],
    ["Requests in 30 min", words.short(totals.requests), totals.requests === 0 ? "" : totals.failed ? `${words.short(totals.failed)} failed` : "none failed"],
  ];
  const make = () => el("div", {}, el("dt"), el("dd", {}, el("span"), el("small")));
  const update = (item, [label, value, note]) => {
    setText(item.querySelector("dt"), label);
    setText(item.querySelector("dd span"), value);
    setText(item.querySelector("small"), note);
  };
  sync(byId("summary"), items, ([label]) => label, make, update);
}

function sums(steps) {
  const isReported = reports(steps);
  const sum = (of) => steps.reduce((all, step) => all + of(step), 0);
  const of = compared(steps);
  const tokens = sum((step) => of(step).prompt_tokens);
  const share = (part) => (tokens > 0 ? sum((step) => of(step)[part]) / tokens : null);
  return {
    requests: sum((step) => step.requests),
    failed: sum((step) => step.failed),
    predictedShare: share(PREDICTED),
    reportedShare: isReported ? share(REPORTED) : null,
  };
}

function cachedNote({ predictedShare, reportedShare }) {
  if (predictedShare === null) return "";
  return reportedShare === null ? "predicted; none reported" : `reported; ${words.percent(predictedShare)} predicted`;
}

// --- problems ---

export function problems(all) {
  const place = byId("problems");
  if (all.length === 0) {
    sync(place, ["none"], (key) => key, () =>
      el("p", { class: "empty" }, "Nothing found: prompts, events and caches are what the gateway takes them for."));
    return;
  }
  const make = (one) => {
    const remedy = el("p");
    setProse(remedy, one.remedy);
    remedy.prepend(el("strong", {}, "What to do: "));
    const where = el("p", { class: "where" }, "Pool ", el("code", {}, one.pool));
    if (one.endpoint) where.append(", endpoint ", el("code", {}, one.endpoint));
    where.append(", cause ", el("code", {}, one.cause));
    return el(
      "article",
      { class: "problem" },
      el("h3", {}, words.cause(one.cause)),
      where,
      el("p", { class: "finding" }),
      remedy,
    );
  };
  const update = (item, one) => setProse(item.querySelector(".finding"), one.finding);
  sync(place, all, (one) => JSON.stringify([one.pool, one.endpoint, one.cause]), make, update);
}

// --- fleet ---

const FLEET = [
  { label: "Endpoint", name: true },
  { label: "State" },
  { label: "Trust in its events" },
  { label: "In flight", unit: "requests", number: true },
  { label: "Queued prefill", unit: "tokens", number: true },
  { label: "KV cache used", number: true },
  { label: "Blocks known", number: true },
];

export function fleet(pools) {
  if (pools.length === 0) {
    sync(byId("fleet"), ["none"], (key) => key, () =>
      el("p", { class: "empty" }, "There is no pool yet. Add one to the configuration's ", el("code", {}, "pools"),
        ", or make one with ", el("code", {}, "POST /api/v1/pools"), "."));
    return;
  }
  sync(byId("fleet"), pools, (pool) => pool.model, makePool, (node, pool) => {
    const splits = pool.splits ? ", splits requests" : "";
    const state = pool.ready ? "" : `, not ready: ${pool.why_not_ready ?? "no endpoint can take a request"}`;
    setText(node.querySelector(".pool-head p"), `policy ${pool.policy}${splits}${state}`);
    const body = node.querySelector("tbody");
    sync(body, pool.endpoints, (one) => one.name, () => row(FLEET), endpoint);
    node.querySelector(".empty").hidden = pool.endpoints.length > 0;
    node.querySelector(".sheet").hidden = pool.endpoints.length === 0;
  });
}

function makePool(pool) {
  const { root } = table(`Endpoints of ${pool.model}`, FLEET);
  const head = el("div", { class: "pool-head" }, el("h3", {}, pool.model), el("p"));
  const empty = el("p", { class: "empty" }, "This pool has no endpoint. Add one with ", el("code", {}, "endpoints"),
    " in the configuration, or ", el("code", {}, "POST /api/v1/pools/{model}/endpoints"), ".");
  return el("div", { class: "pool" }, head, root, empty);
}

function endpoint(node, one) {
  const [name, state, trust, flight, queued, kv, blocks] = node.children;
  const { engine } = one;
  const role = one.role === "unified" ? null : one.role;
  fill(name, words.address(one.name), [engine.kind, engine.version, role].filter(Boolean).join(" "));
  stateOf(state, one);
  trustOf(trust, one);
  fill(flight, words.count(one.in_flight), one.waiting ? `${words.count(one.waiting)} waiting` : "");
  fill(queued, words.count(one.queued_prefill_tokens));
  fill(kv, words.percent(one.kv_usage));
  bar(kv, one.kv_usage);
  const tiers = Object.entries(one.blocks_by_tier).filter(([, held]) => held > 0);
  const byTier = tiers.length > 1 ? tiers.map(([tier, held]) => `${tier} ${words.short(held)}`).join(", ") : "";
  const size = engine.block_size ? `of ${words.count(engine.block_size)} tokens` : "";
  fill(blocks, words.count(one.blocks), byTier || size);
}

function stateOf(cell, one) {
  const breaker = one.breaker === "closed" ? "" : `breaker ${one.breaker.replace("_", "-")}`;
  const why = one.why_not ? words.whyNot(one.why_not) : "";
  if (one.eligible) mark(cell, "good", one.state, breaker, "");
  else if (one.state !== "active") mark(cell, "idle", one.state, why, breaker);
  else mark(cell, "bad", "not available", why, breaker);
}

function trustOf(cell, one) {
  const kind = { exact: "good", catching_up: "warn", partial: "warn", suspect: "bad" }[one.trust] ?? "idle";
  mark(cell, kind, one.trust.replace("_", " "), words.trust(one.trust_reason || one.trust));
}

// --- over time ---

const FIRST = chart({
  title: "Time to first data",
  note: "From the request to the answer's first data; of streams the first token.",
  names: ["Median", "95th percentile"],
  format: words.duration,
});
const TOTAL = chart({
  title: "End to end",
  note: "From the request to the end of the answer.",
  names: ["Median", "95th percentile"],
  format: words.duration,
});
const CACHED = chart({
  title: "Prompt tokens from the cache",
  note: "",
  names: ["Reported", "Predicted"],
  format: words.percent,
  most: 1,
});
const VALUES = [
  { label: "From" },
  { label: "Requests", number: true },
  { label: "Failed", number: true },
  { label: "First data", unit: "median", number: true },
  { label: "First data", unit: "95th", number: true },
  { label: "End to end", unit: "median", number: true },
  { label: "End to end", unit: "95th", number: true },
  { label: "Cached", unit: "reported", number: true },
  { label: "Cached", unit: "predicted", number: true },
];

/** Share of a step's prompt tokens; `null` where there are none, or it has no such part. */
const share = (of, part) => (of.prompt_tokens > 0 && part in of ? of[part] / of.prompt_tokens : null);
const reports = (steps) => steps.some((step) => step.judged.prompt_tokens > 0);
/** What of a step is compared: answers that report; where none does there is the prediction, of all. */
const compared = (steps) => (reports(steps) ? (step) => step.judged : (step) => step);
const REPORTED = "reported_cached_tokens";
const PREDICTED = "predicted_cached_tokens";
let drawn = null;

export function overTime(timeline) {
  const { steps, now_unix_s: nowS, step_s: stepS, kept_s: keptS } = timeline;
  const place = byId("charts");
  if (place.children.length === 0) place.append(FIRST.root, TOTAL.root, CACHED.root);
  place.hidden = steps.length === 0;
  byId("values").hidden = steps.length === 0;
  byId("charts-empty").hidden = steps.length > 0;
  drawn = timeline;
  if (steps.length === 0) return;
  const line = (value) => steps.map((step) => [step.start_unix_s + stepS / 2, value(step)]);
  const common = { nowS, stepS, keptS };
  FIRST.draw({ ...common, lines: [line((s) => s.first_data_ms?.p50), line((s) => s.first_data_ms?.p95)] });
  TOTAL.draw({ ...common, lines: [line((s) => s.total_ms?.p50), line((s) => s.total_ms?.p95)] });
  const of = compared(steps);
  const note = reports(steps)
    ? "Of answers that report it and can be compared."
    : "Of all prompts: no answer reported it. Streams do with stream_options.include_usage, vLLM with --enable-prompt-tokens-details.";
  CACHED.draw({ ...common, note, lines: [line((s) => share(of(s), REPORTED)), line((s) => share(of(s), PREDICTED))] });
  if (byId("values").open) values(timeline);
}

/** Again, for another width. */
export function redraw() {
  if (drawn !== null) overTime(drawn);
}

function values({ steps }) {
  const place = byId("values-table");
  const of = compared(steps);
  if (place.children.length === 0) place.append(table("Times and cached tokens, by ten seconds", VALUES).root);
  const update = (node, step) => {
    const texts = [
      words.clock(step.start_unix_s * 1000),
      words.count(step.requests),
      words.count(step.failed),
      words.duration(step.first_data_ms?.p50),
      words.duration(step.first_data_ms?.p95),
      words.duration(step.total_ms?.p50),
      words.duration(step.total_ms?.p95),
      words.percent(share(of(step), REPORTED)),
      words.percent(share(of(step), PREDICTED)),
    ];
    texts.forEach((text, at) => fill(node.children[at], text));
  };
  sync(place.querySelector("tbody"), [...steps].reverse(), (step) => step.start_unix_s, () => row(VALUES), update);
}

// --- decisions ---

const DECISIONS = [
  { label: "Time" },
  { label: "Endpoint", name: true },
  { label: "Why this one", wide: true },
  { label: "Prompt", unit: "tokens", number: true },
  { label: "Cached", unit: "predicted", number: true },
  { label: "First data", number: true },
  { label: "End to end", number: true },
  { label: "Outcome" },
];

export function decisions(list) {
  const place = byId("decisions");
  if (list.length === 0) {
    sync(place, ["none"], (key) => key, () =>
      el("p", { class: "empty" }, "No request was decided about yet. Send one to the gateway's own port, such as ",
        el("code", {}, "POST /v1/chat/completions"), "; ", el("code", {}, "POST /api/v1/explain"),
        " says what would be decided, and sends nothing."));
    return;
  }
  sync(place, ["table"], (key) => key, () => table("The latest decisions, newest first", DECISIONS).root);
  sync(place.querySelector("tbody"), list, (one) => JSON.stringify(one), decision);
}

function decision(one) {
  const node = row(DECISIONS);
  const [time, where, why, prompt, cached, first, total, outcome] = node.children;
  time.append(el("time", { datetime: one.time, title: one.time }, words.clock(one.time)));
  const prefill = one.prefill_endpoint ? `prompt computed by ${words.address(one.prefill_endpoint)}` : "";
  fill(where, one.endpoint ? words.address(one.endpoint) : "none", prefill || one.model);
  why.append(el("details", {}, el("summary", {}, explained(one)), facts(one)));
  fill(prompt, words.count(one.prompt_tokens));
  fill(cached, words.count(one.overlap), one.reported_cached_tokens === null ? "not reported" : `${words.count(one.reported_cached_tokens)} reported`);
  fill(first, words.duration(one.first_data_ms));
  fill(total, words.duration(one.total_ms));
  const kind = one.outcome === "complete" && one.status < 400 ? "good" : one.status < 500 && one.outcome === "client_left" ? "idle" : "bad";
  mark(outcome, kind, words.outcome(one.outcome), `status ${one.status}`);
  return node;
}

function explained(one) {
  const said = words.reason(one.reason);
  const held = one.overlap > 0 ? ` (${words.count(one.overlap)} of ${words.count(one.prompt_tokens)} tokens)` : "";
  return `${said.charAt(0).toUpperCase()}${said.slice(1)}${held}.`;
}

function facts(one) {
  const list = el("dl", { class: "facts" });
  const fact = (name, value) => {
    if (value !== null && value !== undefined && value !== "") list.append(el("dt", {}, name), el("dd", {}, String(value)));
  };
  fact("Decided by", `policy ${one.policy}, reason ${one.reason}`);
  fact("Special", one.detail ? words.detail(one.detail) : "");
  one.misses.forEach(([policy, word]) => fact(`${policy} had no say`, words.miss(word)));
  fact("Could be chosen", words.several(one.candidates, "endpoint", "endpoints"));
  fact("Also being computed", one.pending > 0 ? words.several(one.pending, "token", "tokens") : "");
  fact("Trust then", one.trust);
  fact("Prompt known", `${words.level(one.level)}${one.tokens === "exact" ? "" : ` (${one.tokens})`}`);
  fact("Served", one.plan ? words.plan(one.plan) : "");
  fact("Engines asked", words.count(one.attempts));
  fact("Path", one.path);
  fact("Request", one.request_id);
  fact("All terms", one.decision_id === null ? "" : `kvasirctl replay FILES --explain ${one.decision_id}`);
  return list;
}

/** The pools to choose from; hidden where there is one. */
export function filter(pools) {
  const select = byId("pool");
  const models = ["", ...pools.map((pool) => pool.model)];
  byId("filter").hidden = pools.length < 2;
  // A browser chooses for itself when options come and go.
  const chosen = models.includes(select.value) && select.options.length > 0 ? select.value : "";
  sync(select, models, (model) => model, (model) => el("option", { value: model }, model || "All pools"));
  if (select.value !== chosen) select.value = chosen;
}
