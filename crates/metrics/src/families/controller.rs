//! The weight controller that is followed.

use super::Group;
use crate::family::{Label, counter, gauge};

/// `applied`, or why a snapshot was refused.
const RESULTS: &[&str] = &[
    "applied",
    "applier_version",
    "boot_id",
    "old_epoch",
    "expired",
    "far_deadline",
    "unknown_service",
    "unknown_endpoint",
    "duplicate",
    "role",
    "range",
];

pub(super) const GROUP: Group = Group {
    title: "Weight controller",
    about: "There where a [weight controller](controller.md) is followed.",
    families: &[
        gauge("kvasir_controller_connected", &[], "1 while the controller is watched."),
        gauge(
            "kvasir_controller_alpha",
            &[],
            "How far its advice counts: 1 until the deadline, then falling to 0.",
        ),
        gauge(
            "kvasir_controller_epoch",
            &[],
            "The number of its last snapshot in effect. 0 before the first.",
        ),
        counter(
            "kvasir_controller_snapshots_total",
            &[Label::of("result", RESULTS)],
            "Its snapshots, by what became of them. `applied`, or the [reason they were refused for](controller.md#what-the-gateway-follows).",
        ),
        counter(
            "kvasir_controller_overrides_total",
            &[],
            "Times an endpoint's own trouble came before what was advised of it.",
        ),
        counter(
            "kvasir_controller_acks_failed_total",
            &[],
            "Acknowledgements that did not get through.",
        ),
    ],
};
