//! Decisions: on what grounds requests went where, and how long that took to find out.

use super::Group;
use super::words::{BOOL, DETAILS, MISSES, MODEL, OWN_SECONDS, POLICY, REASONS};
use crate::family::{Label, counter, histogram};

/// Shares of a prompt.
const SHARES: &[f64] = &[0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

const TOKENS: &[&str] = &[
    "approximate",
    "body",
    "engine_extras",
    "engine_rendered",
    "exact",
    "head",
    "header",
    "multimodal",
    "no_template",
    "no_tokenizer",
    "not_json",
    "not_tried",
    "pairs",
    "stored_response",
    "template_error",
    "token_mismatch",
    "tokenizer",
    "tokenizer_busy",
    "tokenizer_pending",
    "too_long",
    "too_many",
    "unsupported_api",
    "unsupported_field",
];
const SOURCES: &[&str] =
    &["header", "cookie", "user", "prompt_cache_key", "safety_identifier", "none"];
const LEFT_OUT: &[&str] = &["memory", "length", "batch"];

pub(super) const GROUP: Group = Group {
    title: "Decisions",
    about: "Counted when the engine's answer has ended.",
    families: &[
        counter(
            "kvasir_decisions_total",
            &[MODEL, POLICY, Label::of("reason", REASONS)],
            "Decisions behind answered requests, by the policy that made them and its reason.",
        ),
        counter(
            "kvasir_decision_details_total",
            &[MODEL, POLICY, Label::of("detail", DETAILS)],
            "Decisions in which something was [special](configuration.md#x-kvasir-reason).",
        ),
        counter(
            "kvasir_guard_misses_total",
            &[MODEL, POLICY, Label::of("reason", MISSES)],
            "Decisions in which a policy had no say, and the next one decided, by [why](policies.md#why-a-policy-had-no-say).",
        ),
        counter(
            "kvasir_shadow_decisions_total",
            &[MODEL, POLICY, Label::of("agrees", BOOL)],
            "Whether the shadow policy would have chosen the same endpoint.",
        ),
        counter(
            "kvasir_shadow_predicted_cached_tokens_total",
            &[MODEL, POLICY],
            "Tokens believed to be cached where the shadow policy would have sent the request. To hold against \
             `kvasir_predicted_cached_tokens_total` of the same time; decisions in which it had no say count nothing.",
        ),
        counter(
            "kvasir_prompts_total",
            &[MODEL, Label::of("level", &["tokens", "text", "none"]), Label::of("tokens", TOKENS)],
            "How far prompts were known, and why not further. The words are those of [`x-kvasir-reason`](configuration.md#x-kvasir-reason).",
        ),
        counter(
            "kvasir_prompt_tokens_total",
            &[MODEL],
            "Prompt tokens, estimated where they are not known.",
        ),
        counter(
            "kvasir_predicted_cached_tokens_total",
            &[MODEL],
            "Tokens believed to be cached where the request went, without what was pending there.",
        ),
        counter(
            "kvasir_pending_cached_tokens_total",
            &[MODEL],
            "Tokens beyond those that were being computed where the request went ([pending](architecture.md#pending-prefixes)). No part of \
             the predictions.",
        ),
        counter(
            "kvasir_judged_predicted_tokens_total",
            &[MODEL],
            "Tokens believed to be cached, without what was pending, of answers that report them. To hold against \
             `kvasir_judged_reported_tokens_total`; only single prompts with known tokens, without `prompt_logprobs`.",
        ),
        counter(
            "kvasir_judged_reported_tokens_total",
            &[MODEL],
            "Tokens that the engine says were cached, of the same answers.",
        ),
        histogram(
            "kvasir_overlap_ratio",
            SHARES,
            &[MODEL],
            "Share of a prompt believed to be cached where the request went. Only of prompts that are known (level `tokens` or `text`).",
        ),
        histogram(
            "kvasir_stage_seconds",
            OWN_SECONDS,
            &[Label::of("stage", &["parse", "tokenise", "hash", "overlap", "choose"])],
            "How long the gateway's own [stages](architecture.md#the-way-of-a-request) take. `tokenise` without waiting for a thread; `hash`, \
             `overlap` and `choose` once for each attempt, `choose` without waiting for room.",
        ),
        histogram(
            "kvasir_tokenize_seconds",
            OWN_SECONDS,
            &[MODEL],
            "From a body to token ids, without waiting for a thread.",
        ),
        counter(
            "kvasir_sessions_total",
            &[MODEL, Label::of("source", SOURCES)],
            "Where [conversations](policies.md#conversations) were named. Only of pools that go by them or log their decisions.",
        ),
        counter(
            "kvasir_session_names_ignored_total",
            &[MODEL, Label::of("source", SOURCES), Label::of("reason", &["not_text", "too_long"])],
            "Names of conversations that did not count, and why.",
        ),
        counter(
            "kvasir_pending_prompts_left_out_total",
            &[Label::of("reason", LEFT_OUT)],
            "Prompts whose being computed cannot draw others, or only its beginning. `memory`: too many at once; `length`: longer than \
             16,384 blocks, or parting from others at more than 256 places; `batch`: beyond the 16th of a batch.",
        ),
    ],
};
