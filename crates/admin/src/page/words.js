// The gateway's words in plain language. A word that is not here is shown as it is.

const REASONS = {
  least_latency_warm: "least expected latency, and it holds part of the prompt",
  least_latency_cold: "least expected latency; computing the prompt anew costs less there than waiting elsewhere",
  longest_prefix: "holds the longest part of the prompt",
  likely_prefix: "answered a prompt with the same beginning before",
  best_score: "best score of the policy",
  least_load: "fewest requests in flight",
  less_of_two: "less loaded of two drawn at random",
  hashed: "the request's key belongs to it",
  hashed_overflow: "next for the request's key: the first is at its bound",
  pinned: "the conversation is pinned to it",
  turn: "its turn",
  random: "drawn at random",
};

const DETAILS = {
  spill: "a holder was passed over because it was too busy",
  spill_relief: "sent away from a busy holder to spread the prompt",
  cold_seed: "sent to an endpoint without the prompt, so that it gets it too",
};

const MISSES = {
  text_empty: "no readable prompt in the body",
  no_tokenizer: "the model has no tokenizer here",
  tokenizer_pending: "the tokenizer is not loaded yet",
  tokenizer_busy: "all tokenizer threads were busy",
  tokenize: "template or tokenizer failed",
  unsupported: "something in the request cannot be reproduced here",
  api_mode: "bodies of this path are not read for prompts",
  not_ready: "no candidate's events are believed",
  hashes: "no engine's block size or hashing is known",
  no_full_block: "the prompt is shorter than a block",
  no_holder: "no candidate holds any of the prompt",
  zero_hits: "nobody held anything many times in a row",
  excluded: "only endpoints that were left out hold some of it",
  shallow: "the longest match is too short to matter",
};

const TRUST = {
  exact: "its events are sound and complete",
  catching_up: "a history of events is being replayed",
  joined_late: "followed since after the engine began",
  lost_batch: "a batch of events was lost; it fills up again",
  orphans: "blocks with unknown parents are kept aside",
  byte_budget: "blocks were given up for the memory limit",
  blocks_left_out: "some blocks were not described well enough",
  no_stream: "the engine publishes no events",
  connecting: "the publisher cannot be reached yet",
  disconnected: "the connection to the publisher is lost",
  engine_unknown: "the engine does not say what it is",
  engine_without_events: "engines of this kind publish no events",
  not_polled: "its events are not polled",
  rank_unknown: "events of an unknown rank came",
  too_many_ranks: "more ranks than can be followed",
  schema: "an event could not be understood",
  extra_keys_unpublished: "salts and adapters are not published",
  unsupported_group: "a cache group that is not followed",
  lookahead_hashing: "blocks hash tokens ahead",
  hash_mismatch: "the engine does not hash as configured",
  life_in_doubt: "it may be a new life of the engine",
  hit_mismatch: "it hits less than its events promise",
  crowded: "a second publisher is connected",
};

const WHY_NOT = {
  no_answer_yet: "has not answered yet",
  model_not_served: "does not serve this model",
  asleep: "sleeps",
  breaker_open: "failed several requests in a row",
  half_open: "on trial after failures",
  back_pressure: "said that it is busy",
  unhealthy: "its health page says that it is not well",
  silent: "accepts connections and answers nothing",
  context_too_long: "its context is too short",
  draining: "takes no new conversations",
  disabled: "out of service",
  wrong_role: "only computes prompts for others",
  no_transfer: "how it hands over KV is not known",
  at_limit_requests: "has as many requests as it may",
  at_limit_tokens: "has as many tokens under way as it may",
  kv_saturated: "its KV cache is full of what is under way",
  tried: "the request failed there already",
  not_owner: "another engine keeps what the request goes on from",
  advised_draining: "drained by the weight controller",
  advised_disabled: "taken out by the weight controller",
};

const CAUSES = {
  no_tokenizer: "No tokenizer",
  wrong_tokenizer: "Tokenizer differs from the engine's",
  wrong_template: "Chat template differs from the engine's",
  no_events: "No events",
  lost_events: "Events were lost",
  joined_late: "Joined late",
  events_not_understood: "Events are not understood",
  events_in_doubt: "Events are in doubt",
  wrong_block_size: "Block sizes differ",
  wrong_hash: "Hashes differ",
  over_predicted: "Hits less than predicted",
  full_cache: "The cache is full",
  full_inventory: "The inventory is full",
  prefix_caching_off: "Prefix caching is off",
  slow_replica: "Slower than the others",
  unreachable: "Unreachable",
  under_predicted: "Hits far more than predicted",
  not_ready: "Serves nothing",
  model_not_served: "No engine serves this name",
  no_hand_over: "KV is not handed over",
  config_refused: "The configuration file is refused",
};

const OUTCOMES = {
  complete: "complete",
  client_left: "the client left",
  engine_broke_off: "the engine broke off",
  idle_timeout: "the engine paused for too long",
  request_timeout: "took too long in all",
  first_data_timeout: "the engine did not begin in time",
  incomplete_stream: "the stream ended without its last event",
  stopping: "the gateway stopped before it was over",
};

const LEVELS = { tokens: "token by token", text: "approximately", none: "not at all" };

const PLANS = {
  split: "prompt and answer by two engines",
  decode_alone: "the decode engine did all of it: that cost least",
  unified: "one engine for prompt and answer",
  no_prefill: "no prefill engine was free: the decode engine computed the prompt",
  not_split: "not to be split: the decode engine did all of it",
  prefill_failed: "prefill failed: the decode engine computed the prompt",
  params_missing: "the prefill engine handed nothing over: the decode engine computed the prompt",
  ended_early: "the first token ended the answer: the decode engine computed the prompt",
  transfer_failed: "the decode engine failed, and may have tried to fetch",
  lease_expired: "what was handed over had expired: the decode engine computed the prompt",
  unknown_protocol: "how the prefill engine hands over is not known: the decode engine computed the prompt",
};

/** A word of a table in plain language, or the word itself; own properties only. */
function plain(words, word) {
  return Object.hasOwn(words, word) ? words[word] : String(word);
}

export const reason = (word) => plain(REASONS, word);
export const detail = (word) => plain(DETAILS, word);
export const miss = (word) => plain(MISSES, word);
export const trust = (word) => plain(TRUST, word);
// Why it cannot be reached is a problem of its own, with a remedy.
export const whyNot = (word) => (word.startsWith("unreachable") ? "cannot be reached, see Problems" : plain(WHY_NOT, word));
export const cause = (word) => plain(CAUSES, word);
export const outcome = (word) => plain(OUTCOMES, word);
export const level = (word) => plain(LEVELS, word);
export const plan = (word) => plain(PLANS, word);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { maximumFractionDigits: 1, notation: "compact" });

/** A count with separators. */
export const count = (number) => (number === null || number === undefined ? "–" : whole.format(number));

/** A count in few characters. */
export const short = (number) => (number < 100000 ? whole.format(number) : compact.format(number));

/** A share in percent. */
export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

/** Milliseconds with a unit that suits them. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  return `${(ms / 60000).toFixed(1)} min`;
}

/** An endpoint's name without what most of them begin with. */
export const address = (name) => name.replace(/^http:[/][/]/, "");

/** One thing, or several. */
export const several = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

/** The time of day where the reader is. */
export function clock(time) {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return "–";
  return at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}
