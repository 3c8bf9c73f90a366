//! The process: its configuration, its tasks, what it tells others.

use super::Group;
use crate::family::{Label, counter, gauge};

pub(super) const GROUP: Group = Group {
    title: "Process and configuration",
    about: "",
    families: &[
        counter(
            "kvasir_config_reloads_total",
            &[Label::of("result", &["applied", "rejected"])],
            "[Changes of the configuration](configuration.md#changes-while-it-runs) that were taken up or refused.",
        ),
        gauge(
            "kvasir_config_loaded_timestamp_seconds",
            &[],
            "When the configuration that is in effect was taken up.",
        ),
        gauge(
            "kvasir_config_stale",
            &[],
            "1 while the configuration file was refused: what is in effect is older, and the next start would fail.",
        ),
        counter(
            "kvasir_config_changes_dropped_total",
            &[],
            "Changes made through the [admin API](admin-api.md#what-a-change-is) that a configuration left no place for; `/api/v1/config/dropped` has them.",
        ),
        counter(
            "kvasir_config_panics_total",
            &[],
            "Configurations and changes whose taking up broke off: what is in effect may be a part of one until a restart.",
        ),
        gauge(
            "kvasir_runtime_tasks",
            &[],
            "Tasks of the async runtime: a few for each engine, one for each connection.",
        ),
        counter(
            "kvasir_spans_total",
            &[Label::of("result", &["sent", "dropped", "failed"])],
            "[Spans](observability.md#tracing) of requests, by what became of them. `dropped`: the queue was full; `failed`: the collector could not be \
             reached, answered with an error or rejected them.",
        ),
    ],
};
