//! Predictions held against what engines report.

use super::Group;
use super::words::{ENDPOINT, MODEL, RANK};
use crate::family::{Label, counter, gauge};

const ORACLE: Label = Label::of("oracle", &["usage", "counters"]);
const POOL: Label = Label::any("pool");
const API: Label = Label::any("api");
const UNJUDGED: &[&str] = &[
    "prompt",
    "trust",
    "attempt",
    "no_report",
    "token_count",
    "tier",
    "moved",
    "surplus",
    "split",
];

pub(super) const GROUP: Group = Group {
    title: "Predictions against reports",
    about: "How it is compared, and what follows: [predictions against reports](observability.md#predictions-against-reports).",
    families: &[
        counter(
            "kvasir_hit_judged_total",
            &[
                ENDPOINT,
                RANK,
                ORACLE,
                Label::of("verdict", &["equal", "within_block", "over", "under"]),
            ],
            "Comparisons of predicted and hit prompt tokens. `within_block`: a block may be evicted or stored between choice and \
             scheduling; `over`: more was predicted; `under`: more was hit.",
        ),
        counter(
            "kvasir_hit_predicted_tokens_total",
            &[ENDPOINT, RANK, ORACLE],
            "Tokens these predictions expected to be hit.",
        ),
        counter(
            "kvasir_hit_reported_tokens_total",
            &[ENDPOINT, RANK, ORACLE],
            "Tokens the engine says were hit instead.",
        ),
        counter(
            "kvasir_hit_unjudged_total",
            &[ENDPOINT, RANK, Label::of("reason", UNJUDGED)],
            "Answers that were not held against a prediction, and why.",
        ),
        counter(
            "kvasir_hit_segments_left_out_total",
            &[ENDPOINT, RANK, Label::of("reason", &["foreign", "void"])],
            "Spans of the engine's counters that were not compared. `foreign`: others sent requests too; `void`: a request failed or \
             was not known exactly, the counters began anew, blocks were forgotten.",
        ),
        gauge(
            "kvasir_hit_window_size",
            &[ENDPOINT, RANK, ORACLE],
            "Comparisons in the window that decides on `hit_mismatch`, at most 20. It begins anew with every decision.",
        ),
        gauge(
            "kvasir_hit_window_over",
            &[ENDPOINT, RANK, ORACLE],
            "Comparisons in that window that predicted too much; 8 are a mismatch.",
        ),
        gauge(
            "kvasir_hit_profile_blocks",
            &[ENDPOINT, RANK],
            "1 where the engine computes the last matching block anew (EAGLE, MTP), which was learned and is taken off predictions.",
        ),
        counter(
            "kvasir_token_judged_total",
            &[POOL, MODEL, API, Label::of("verdict", &["equal", "different"])],
            "Our counts of prompt tokens held against the engines' `usage.prompt_tokens`.",
        ),
        gauge(
            "kvasir_token_mismatch",
            &[POOL, MODEL, API],
            "1 while prompts of that model and API are counted differently.",
        ),
    ],
};
