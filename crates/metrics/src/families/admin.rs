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
            &[Label::of("reason", &["queue_full", "rate", "disk"])],
            "Lines missing in the audit. `disk`: its file cannot be written; `queue_full`: the disk is too slow (lines of changes are in the log); `rate`: refused \
             requests beyond 50 in 10 s, which the audit counts.",
        ),
        counter(
            "kvasir_admin_tls_reloads_total",
            &[Label::of("result", &["ok", "failed"])],
            "Changed certificate files of the admin port that were taken up, or could not be used.",
        ),
        gauge(
            "kvasir_admin_tls_stale",
            &[],
            "1 while the admin port's files of certificates are not what is in use.",
        ),
    ],
};
