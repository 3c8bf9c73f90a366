//! Endpoints: whether they serve, and what they have to do.

use super::Group;
use super::words::{BREAKER_STATES, ENDPOINT, RANK};
use crate::family::{Label, counter, gauge};

const TO_BREAKER: &[&str] = &["faults", "trial_failed", "rest_over", "reappeared", "answered"];

pub(super) const GROUP: Group = Group {
    title: "Endpoints",
    about: "Rendered from the fleet as it is at the moment of the scrape: an endpoint that is gone leaves no series behind. Where an \
            endpoint is one data-parallel rank, its families have the label `rank` too.",
    families: &[
        gauge("kvasir_endpoint_up", &[ENDPOINT, RANK], "1 while the engine answers."),
        gauge(
            "kvasir_endpoint_breaker",
            &[ENDPOINT, Label::of("state", BREAKER_STATES)],
            "1 for the state of the engine's [breaker](configuration.md#health). The ranks of an engine share it.",
        ),
        counter(
            "kvasir_breaker_transitions_total",
            &[ENDPOINT, Label::of("to", BREAKER_STATES), Label::of("reason", TO_BREAKER)],
            "Changes of the engine's breaker. `open` by `faults` or `trial_failed`, `half_open` by `rest_over` (with the first \
             request that could try) or `reappeared` (a page of an engine that was gone answers), `closed` because a request was \
             `answered`. Each is a line of the log, with the last fault.",
        ),
        gauge(
            "kvasir_endpoint_state",
            &[ENDPOINT, RANK, Label::of("state", &["active", "drain", "disabled", "leaving"])],
            "1 for whether requests may go there, by the [configuration](configuration.md). `leaving`: it is in no pool any more, \
             or goes by another name (`rank`) since a reload, and still has requests.",
        ),
        gauge("kvasir_endpoint_in_flight", &[ENDPOINT, RANK], "Requests sent and not finished."),
        gauge(
            "kvasir_endpoint_decoding",
            &[ENDPOINT, RANK],
            "Requests in flight whose prompt is computed. By their first data, or, of answers that are not streamed, by the \
             predicted end of their prefill; of decode legs, by that of the transfer, or, of legs sent at once, by the prefill \
             leg's answer.",
        ),
        gauge(
            "kvasir_endpoint_queued_prefill_tokens",
            &[ENDPOINT, RANK],
            "Prompt tokens sent and not computed yet, as far as is known or predicted.",
        ),
        gauge(
            "kvasir_endpoint_pending_prefixes",
            &[ENDPOINT, RANK],
            "Prompts being computed there, or computed within the last two seconds, that choices count on.",
        ),
        gauge(
            "kvasir_endpoint_foreign_waiting",
            &[ENDPOINT, RANK],
            "Waiting requests this gateway did not send, as of the engine's last metrics page. What it sent while the page was on its way may \
             hide some.",
        ),
        gauge(
            "kvasir_endpoint_kv_usage",
            &[ENDPOINT, RANK],
            "Used share of the engine's KV cache.",
        ),
        gauge(
            "kvasir_endpoint_prefill_tokens_per_second",
            &[ENDPOINT, RANK],
            "Prompt tokens per second, [learned](policies.md#latency-and-ttft) from streamed answers and prefill legs of which it is \
             known how much was computed.",
        ),
        gauge(
            "kvasir_endpoint_weight",
            &[ENDPOINT, RANK],
            "The weight that counts. As configured, scaled by what the [weight controller](controller.md) advises.",
        ),
        gauge(
            "kvasir_endpoint_advised_percent",
            &[ENDPOINT, RANK],
            "The share of the configured weight, 1 to 100 %, that counts by a [weight controller's](controller.md) advice.",
        ),
        gauge("kvasir_endpoint_block_size", &[ENDPOINT, RANK], "Tokens per KV-cache block."),
    ],
};
