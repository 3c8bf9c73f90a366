//! Labels that several families have, and the words of those with a closed set.

use crate::family::Label;

/// The model by its own name, however clients call it; an adapter's where one was asked for. Empty where a
/// request was refused before its model was known.
pub(super) const MODEL: Label = Label::any("model");
/// An engine's URL.
pub(super) const ENDPOINT: Label = Label::any("endpoint");
/// The data-parallel rank, where an endpoint is one or an engine has several streams.
pub(super) const RANK: Label = Label::any("rank").optional();
/// A policy's name.
pub(super) const POLICY: Label = Label::of("policy", POLICIES);
/// Whether an answer is a stream.
pub(super) const STREAM: Label = Label::of("stream", BOOL);
/// How far an event stream is believed.
pub(super) const TRUST: Label = Label::of("state", TRUST_STATES);
/// Why no further.
pub(super) const TRUST_REASON: Label = Label::of("reason", TRUST_REASONS);

pub(super) const BOOL: &[&str] = &["true", "false"];
pub(super) const POLICIES: &[&str] = &[
    "latency",
    "ttft",
    "precise_cache_aware",
    "precise_pipeline",
    "cache_aware",
    "lmcache_aware",
    "least_load",
    "power_of_two",
    "round_robin",
    "weighted",
    "random",
    "consistent_hash",
    "chwbl",
    "session",
    "sticky",
];
pub(super) const REASONS: &[&str] = &[
    "turn",
    "random",
    "least_load",
    "less_of_two",
    "longest_prefix",
    "least_latency_warm",
    "least_latency_cold",
    "likely_prefix",
    "best_score",
    "pinned",
    "hashed",
    "hashed_overflow",
];
pub(super) const DETAILS: &[&str] = &["spill", "spill_relief", "cold_seed"];
pub(super) const MISSES: &[&str] = &[
    "text_empty",
    "no_tokenizer",
    "tokenizer_pending",
    "tokenizer_busy",
    "tokenize",
    "unsupported",
    "api_mode",
    "hashes",
    "not_ready",
    "no_full_block",
    "no_holder",
    "zero_hits",
    "excluded",
    "shallow",
];
pub(super) const TRUST_STATES: &[&str] = &["absent", "catching_up", "exact", "partial", "suspect"];
pub(super) const TRUST_REASONS: &[&str] = &[
    "",
    "no_stream",
    "connecting",
    "disconnected",
    "engine_unknown",
    "too_many_ranks",
    "rank_unknown",
    "engine_without_events",
    "not_polled",
    "joined_late",
    "lost_batch",
    "orphans",
    "blocks_left_out",
    "byte_budget",
    "life_in_doubt",
    "crowded",
    "schema",
    "extra_keys_unpublished",
    "unsupported_group",
    "lookahead_hashing",
    "hash_mismatch",
    "hit_mismatch",
];
pub(super) const BREAKER_STATES: &[&str] = &["closed", "open", "half_open"];
/// Seconds of what engines do: a first token may take milliseconds or minutes.
pub(super) const ENGINE_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];
/// Seconds of what the gateway itself does: microseconds to tens of milliseconds.
pub(super) const OWN_SECONDS: &[f64] =
    &[2e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 5e-2, 0.25];
