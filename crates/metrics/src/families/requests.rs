//! Requests: what became of them, and how long they took.

use super::Group;
use super::words::{ENDPOINT, ENGINE_SECONDS, MODEL, STREAM};
use crate::family::{Label, counter, histogram};

/// Seconds for one token of an answer.
const TOKEN_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0];

const FAILED_CAUSES: &[&str] = &[
    "connect_pool",
    "connect_dns",
    "connect_tcp",
    "connect_tls",
    "send",
    "first_data_timeout",
    "broke",
    "not_http",
    "refused",
    "invalid",
    "idle_timeout",
    "request_timeout",
    "pd_prefill_timeout",
    "pd_decode_timeout",
    "pd_pair_timeout",
];

pub(super) const GROUP: Group = Group {
    title: "Requests",
    about: "`outcome` is `complete`, `client_left` (the client went before the end of the answer), or the code of the \
            error that the client got ([whose fault](observability.md#requests)).",
    families: &[
        counter(
            "kvasir_requests_total",
            &[MODEL, Label::any("status"), Label::any("outcome")],
            "Requests that were forwarded or refused.",
        ),
        histogram(
            "kvasir_request_seconds",
            ENGINE_SECONDS,
            &[MODEL],
            "From the request's head to the end of the answer.",
        ),
        histogram(
            "kvasir_first_data_seconds",
            ENGINE_SECONDS,
            &[MODEL, STREAM],
            "From the request's head to the answer's first data. The time to first token where `stream=\"true\"`.",
        ),
        histogram(
            "kvasir_time_per_output_token_seconds",
            TOKEN_SECONDS,
            &[MODEL],
            "From a streamed answer's first data to its end, for each token after the first. Only of complete \
             answers whose engine reports `completion_tokens` (`stream_options.include_usage`), at least two.",
        ),
        counter(
            "kvasir_failed_attempts_total",
            &[ENDPOINT, Label::of("cause", FAILED_CAUSES)],
            "Attempts that failed before an answer began, by the phase they were in. `connect_*`: no connection; \
             `refused`: an h2 engine did nothing with it, twice (busy); `invalid`: the request cannot be said in the \
             engine's protocol, and the client gets 400; of answers that are not streamed and did not come to their end, also \
             `idle_timeout`; `request_timeout` where it was the time for the whole request that was over; \
             `pd_*_timeout` of a leg, `pd_pair_timeout` at both engines.",
        ),
        counter(
            "kvasir_retries_total",
            &[
                MODEL,
                Label::of("cause", &["connect", "broke", "error", "busy"]),
                Label::of("result", &["ok", "failed", "no_budget"]),
            ],
            "[Retries](configuration.md#retries), by what made them. `error` is 500, 502 or 504, `busy` 503, 429 or refused over h2. \
             `ok`: another engine answered; `failed`: it did no better; `no_budget`: not made, since the pool's budget was \
             spent.",
        ),
        counter(
            "kvasir_streams_broken_total",
            &[
                MODEL,
                Label::of(
                    "cause",
                    &["broke", "idle_timeout", "request_timeout", "no_done", "stopping"],
                ),
            ],
            "Answers that had begun and were [not completed](configuration.md#answers-that-break). `no_done`: the engine ended \
             a stream in good order without the event that ends an answer; `stopping`: the time of a [stop](operations.md#stopping) was over.",
        ),
    ],
};
