//! What metrics and log say of configurations that are taken up.

use std::path::Path;
use std::time::SystemTime;

use kvasir_admin::LeftOut;

/// The new configuration is not in effect.
pub(super) fn refused(path: &Path, error: &anyhow::Error) {
    let (file, error) = (path.display(), format!("{error:#}"));
    tracing::error!(%file, error, "the new configuration cannot be used: the old one stays");
    count("rejected");
    note_stale(true);
}

/// Whether the file is another than what is in effect, since it was refused.
pub(super) fn note_stale(stale: bool) {
    metrics::gauge!("kvasir_config_stale").set(if stale { 1.0 } else { 0.0 });
}

/// Changes are in effect no more.
pub(super) fn dropped(dropped: &[LeftOut]) {
    for LeftOut { change, .. } in dropped {
        tracing::warn!(
            change,
            "a change made through the admin API is dropped: it does not fit any more"
        );
    }
    left_out().increment(dropped.len() as u64);
}

/// Taking up a configuration panicked: where it was cut off is not known.
pub(super) fn panicked() {
    tracing::error!(
        "taking up a configuration broke off: what is in effect may be a part of it, a restart mends that"
    );
    panics().increment(1);
}

pub(super) fn count(result: &'static str) {
    counter(result).increment(1);
}

/// An alert on the first one needs to have seen that there was none.
pub(super) fn count_from_zero() {
    ["applied", "rejected"].into_iter().for_each(|result| counter(result).increment(0));
    left_out().increment(0);
    panics().increment(0);
}

pub(super) fn note_loaded() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    metrics::gauge!("kvasir_config_loaded_timestamp_seconds").set(now.as_secs_f64());
}

fn counter(result: &'static str) -> metrics::Counter {
    metrics::counter!("kvasir_config_reloads_total", "result" => result)
}

fn left_out() -> metrics::Counter {
    metrics::counter!("kvasir_config_changes_dropped_total")
}

fn panics() -> metrics::Counter {
    metrics::counter!("kvasir_config_panics_total")
}
