//! The admin API: who asked for what, and what became of it.

use super::Group;
use super::words::OWN_SECONDS;
use crate::family::{Label, counter, gauge, histogram};

pub(super) const GROUP: Group = Group {
    title: "Admin API",
    about: "Where the [admin API](admin-api.md) is served. `route` is a route's template, with no value of any request in it; \
            `none` for paths and methods that do not exist.",
    families: &[
        counter(
            "kvasir_admin_requests_total",
            &[Label::any("route"), Label::any("method"), Label::any("status")],
            "Requests to the admin API.",
        ),
        histogram(
            "kvasir_admin_request_seconds",
            OWN_SECONDS,
            &[],
            "From the head of a request to the admin API to its answer.",
        ),
        counter(
            "kvasir_admin_denied_total",
            &[Label::any("reason")],
            "Requests to the admin API whose caller was refused, by the error's code.",
        ),
        counter(
            "kvasir_admin_changes_total",
            &[Label::any("route"), Label::any("method"), Label::any("result")],
            "Changes that were asked for. `result` is `done` or the error's code.",
        ),
        gauge("kvasir_admin_connections", &[], "Connections to the admin port that are open."),
        counter(
            "kvasir_admin_audit_dropped_total",
            &[],
            "Lines of the audit that could not be written to its file. Each is an error in the log, with the line.",
        ),
    ],
};
