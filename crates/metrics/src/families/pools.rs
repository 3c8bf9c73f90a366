//! Pools: whether they serve, what waits for them, their decision logs.

use super::Group;
use super::words::{ENDPOINT, ENGINE_SECONDS, MODEL, RANK};
use crate::family::{Label, counter, gauge, histogram};

const OUTCOMES: &[&str] =
    &["served", "overloaded", "queue_full", "queue_timeout", "nobody", "client_left"];
const LOG_REASONS: &[&str] =
    &["", "not_pruned", "disk_full", "not_permitted", "no_directory", "io"];

pub(super) const GROUP: Group = Group {
    title: "Pools",
    about: "",
    families: &[
        gauge(
            "kvasir_pool_ready",
            &[MODEL],
            "1 while the pool can take a request. SGLang's decode endpoints can only with a prefill endpoint beside them.",
        ),
        gauge(
            "kvasir_pool_endpoint",
            &[MODEL, ENDPOINT, RANK],
            "1 for each endpoint of the pool. To join families of endpoints with their pools: `kvasir_endpoint_in_flight * on \
             (job, instance, endpoint, rank) group_right kvasir_pool_endpoint`.",
        ),
        gauge("kvasir_pool_tokenizer_ready", &[MODEL], "1 while prompts can be tokenised."),
    ],
};

pub(super) const ADMISSION: Group = Group {
    title: "Admission",
    about: "Only of pools with [limits](configuration.md#admission) or `hold_ms`.",
    families: &[
        gauge("kvasir_admission_waiting", &[MODEL], "Requests that wait now."),
        counter(
            "kvasir_admission_total",
            &[MODEL, Label::of("outcome", OUTCOMES)],
            "What became of requests for which there was no room at once. `served` after waiting, turned away as `overloaded` (no \
             queue), `queue_full` or `queue_timeout`, `nobody` (no endpoint to serve them), `client_left`.",
        ),
        histogram(
            "kvasir_admission_wait_seconds",
            ENGINE_SECONDS,
            &[MODEL],
            "How long those waited that did, without those whose clients left.",
        ),
        counter(
            "kvasir_admission_unread_headers_total",
            &[MODEL, Label::of("header", &["priority", "timeout"])],
            "Headers of requests that could not be read and were passed over. The first is shown in the log.",
        ),
        gauge(
            "kvasir_admission_limit",
            &[
                MODEL,
                Label::of("scope", &["pool", "endpoint"]),
                Label::of("limit", &["requests", "prefill_tokens", "kv_usage", "queue_places"]),
            ],
            "The limits there are, of the pool or of each endpoint.",
        ),
    ],
};

pub(super) const DECISION_LOG: Group = Group {
    title: "Decision log",
    about: "Where the [decision log](configuration.md#decision-log) is on.",
    families: &[
        gauge(
            "kvasir_decision_log_state",
            &[MODEL, Label::of("state", &["writing", "failing"]), Label::of("reason", LOG_REASONS)],
            "1 for whether the decision log can be written, and why not. `not_pruned` where old files cannot be removed and more are \
             kept than wanted. A change is a line of the gateway's own log, with the system's message.",
        ),
        counter(
            "kvasir_decision_log_lines_total",
            &[MODEL],
            "Lines written to the decision log: decisions, outcomes, `forget`.",
        ),
        counter("kvasir_decision_log_bytes_total", &[MODEL], "Bytes written to the decision log."),
        counter(
            "kvasir_decision_log_dropped_total",
            &[MODEL, Label::of("reason", &["queue_full", "disk"])],
            "Lines that are missing in the decision log. `queue_full`: the disk is slower than the decisions; `disk`: it failed.",
        ),
    ],
};
