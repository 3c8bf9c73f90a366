//! What the admin API counts of itself. Labels are words of the table of routes and codes of errors: of a
//! request nothing else gets into them.

use std::time::Instant;

use http::StatusCode;
use metrics::Gauge;

use crate::error::ApiError;
use crate::routes::Route;

/// Methods and paths that are in no route.
const NONE: &str = "none";

/// A request was answered.
pub(crate) fn answered(route: Option<&'static Route>, status: StatusCode, began: Instant) {
    let (path, method) = route.map_or((NONE, NONE), |route| (route.path, route.method));
    metrics::counter!("kvasir_admin_requests_total",
        "route" => path, "method" => method, "status" => status.as_u16().to_string())
    .increment(1);
    metrics::histogram!("kvasir_admin_request_seconds").record(began.elapsed());
}

/// A caller was refused.
pub(crate) fn denied(error: &ApiError) {
    metrics::counter!("kvasir_admin_denied_total", "reason" => error.code).increment(1);
}

/// A change was asked for.
pub(crate) fn changed(route: &'static Route, result: Result<u16, &ApiError>) {
    let result = result.map_or_else(|error| error.code, |_| "done");
    metrics::counter!("kvasir_admin_changes_total",
        "route" => route.path, "method" => route.method, "result" => result)
    .increment(1);
}

/// A connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection(Gauge);

impl Connection {
    pub(crate) fn begin() -> Self {
        let open = metrics::gauge!("kvasir_admin_connections");
        open.increment(1.0);
        Self(open)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
