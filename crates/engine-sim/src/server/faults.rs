//! Faults made on purpose, and their JSON form.
//!
//! Here they are only said. Those of events happen in `publisher.rs`, those of HTTP in `http.rs`, of kept
//! connections in `idle.rs`, of fetched prompts in `disagg/fetch.rs`; `routes.rs` has the route that sets
//! them.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::disagg::rooms::Side;

/// What happens to event batches on their way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EventFault {
    #[default]
    None,
    /// Numbered and kept for replay, but not sent.
    Drop,
    /// Sent and kept for replay so much later, in order.
    Delay(Duration),
    /// Sent twice under the same number.
    Duplicate,
}

/// What happens to HTTP requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HttpFault {
    #[default]
    None,
    /// Never answered.
    Hang,
    /// Answered with this status, in vLLM's form.
    Error(u16),
    /// Answered so much later.
    Slow(Duration),
    /// The connection is reset after the first part of the answer's body.
    ResetMidBody,
    /// Bytes that are no HTTP come in place of the answer, and the connection ends.
    Garbage,
    /// The connection is reset in place of an answer.
    Reset,
}

/// What happens to prompts this server fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TransferFault {
    #[default]
    None,
    /// They do not arrive, after the time it would have taken.
    Fail,
    /// They arrive so much later.
    Slow(Duration),
}

/// The longest delay that can be asked for.
const MAX_DELAY: Duration = Duration::from_secs(600);

/// The longest path prefix that is kept.
const MAX_PATH: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Settings {
    events: EventFault,
    http: HttpFault,
    /// The paths `http` applies to begin with this.
    path: String,
    /// The legs `http` applies to; all requests if none.
    leg: Option<Side>,
    transfer: TransferFault,
    /// Leases are over as soon as they are granted.
    lease_expired: bool,
    /// Whoever fetches a prompt that is gone gets what lies in its blocks by then, and no error.
    gone_is_read: bool,
    /// Each fault happens once and is over.
    once: bool,
    /// Connections are closed after so long without a request; never without it.
    keep_alive: Option<Duration>,
}

/// The faults of one server; they survive restarts.
#[derive(Debug, Default)]
pub(super) struct Faults {
    settings: Mutex<Settings>,
    /// That of the settings, for connections that wait for it to change.
    keep_alive: watch::Sender<Option<Duration>>,
}

impl Faults {
    /// The fault for the next batch.
    pub(super) fn take_event(&self) -> EventFault {
        let settings = &mut *self.settings.lock();
        if settings.once { std::mem::take(&mut settings.events) } else { settings.events }
    }

    /// The fault for a request of this path, and of a leg that is looked at where it matters.
    pub(super) fn take_http(&self, path: &str, leg: impl FnOnce() -> Option<Side>) -> HttpFault {
        let settings = &mut *self.settings.lock();
        let applies = settings.http != HttpFault::None && path.starts_with(&settings.path);
        if !applies || (settings.leg.is_some() && settings.leg != leg()) {
            return HttpFault::None;
        }
        if settings.once { std::mem::take(&mut settings.http) } else { settings.http }
    }

    /// The fault for a prompt to fetch.
    pub(super) fn take_transfer(&self) -> TransferFault {
        let settings = &mut *self.settings.lock();
        if settings.once { std::mem::take(&mut settings.transfer) } else { settings.transfer }
    }

    /// Whether the next lease is over at once.
    pub(super) fn take_lease_expired(&self) -> bool {
        let settings = &mut *self.settings.lock();
        let expired = settings.lease_expired;
        settings.lease_expired &= !settings.once;
        expired
    }

    /// Whether a prompt that is gone is read all the same, as one-sided reads do.
    pub(super) fn gone_is_read(&self) -> bool {
        self.settings.lock().gone_is_read
    }

    /// How long an idle connection is kept, now and later.
    pub(super) fn keep_alive(&self) -> watch::Receiver<Option<Duration>> {
        self.keep_alive.subscribe()
    }

    /// Changes what the object names, and nothing if any of it is wrong.
    pub(super) fn set(&self, wanted: &Map<String, Value>) -> Result<(), String> {
        let mut changed = self.settings.lock().clone();
        for (key, value) in wanted {
            let text = || value.as_str().ok_or_else(|| format!("`{key}` must be a string"));
            match key.as_str() {
                "events" => changed.events = event_fault(text()?)?,
                "http" => changed.http = http_fault(text()?)?,
                "path" if text()?.len() <= MAX_PATH => changed.path = text()?.to_owned(),
                "path" => return Err(format!("`path` is longer than {MAX_PATH} bytes")),
                "leg" => changed.leg = leg(text()?)?,
                "transfer" => changed.transfer = transfer_fault(text()?)?,
                "lease" => changed.lease_expired = lease_fault(text()?)?,
                "gone" => changed.gone_is_read = gone_fault(text()?)?,
                "keep_alive_ms" => changed.keep_alive = keep_alive(value)?,
                "once" => {
                    changed.once = value.as_bool().ok_or("`once` must be true or false")?;
                }
                _ => return Err(unknown("fault", key, KEYS)),
            }
        }
        self.keep_alive.send_replace(changed.keep_alive);
        *self.settings.lock() = changed;
        Ok(())
    }

    /// The settings in the form [`Faults::set`] takes.
    pub(super) fn to_json(&self) -> Value {
        let settings = self.settings.lock().clone();
        let Settings { events, http, path, leg, transfer, once, keep_alive, .. } = &settings;
        let events = match events {
            EventFault::None => "ok".to_owned(),
            EventFault::Drop => "drop".to_owned(),
            EventFault::Delay(time) => format!("delay_ms:{}", time.as_millis()),
            EventFault::Duplicate => "duplicate".to_owned(),
        };
        let http = match http {
            HttpFault::None => "ok".to_owned(),
            HttpFault::Hang => "hang".to_owned(),
            HttpFault::Error(status) => format!("error:{status}"),
            HttpFault::Slow(time) => format!("slow:{}", time.as_millis()),
            HttpFault::ResetMidBody => "reset_mid_body".to_owned(),
            HttpFault::Garbage => "garbage".to_owned(),
            HttpFault::Reset => "reset".to_owned(),
        };
        let leg = match leg {
            None => "",
            Some(Side::Prefill) => "prefill",
            Some(Side::Decode) => "decode",
        };
        let transfer = match transfer {
            TransferFault::None => "ok".to_owned(),
            TransferFault::Fail => "fail".to_owned(),
            TransferFault::Slow(time) => format!("slow:{}", time.as_millis()),
        };
        let lease = if settings.lease_expired { "expired" } else { "ok" };
        let gone = if settings.gone_is_read { "garbage" } else { "ok" };
        let keep_alive = keep_alive.map(|time| time.as_millis() as u64);
        json!({"events": events, "http": http, "path": path, "leg": leg,
            "transfer": transfer, "lease": lease, "gone": gone, "once": once,
            "keep_alive_ms": keep_alive})
    }
}

/// What [`Faults::set`] takes.
const KEYS: &str = "events, http, path, leg, transfer, lease, gone, once, keep_alive_ms";

fn unknown(what: &str, word: &str, expected: &str) -> String {
    format!("unknown {what} `{word}`, expected one of {expected}")
}

fn event_fault(text: &str) -> Result<EventFault, String> {
    match text.split_once(':') {
        None if text == "ok" => Ok(EventFault::None),
        None if text == "drop" => Ok(EventFault::Drop),
        None if text == "duplicate" => Ok(EventFault::Duplicate),
        Some(("delay_ms", number)) => Ok(EventFault::Delay(milliseconds(number)?)),
        _ => Err(unknown("event fault", text, "ok, drop, duplicate, delay_ms:N")),
    }
}

fn http_fault(text: &str) -> Result<HttpFault, String> {
    match text.split_once(':') {
        None if text == "ok" => Ok(HttpFault::None),
        None if text == "hang" => Ok(HttpFault::Hang),
        None if text == "reset_mid_body" => Ok(HttpFault::ResetMidBody),
        None if text == "garbage" => Ok(HttpFault::Garbage),
        None if text == "reset" => Ok(HttpFault::Reset),
        Some(("slow", number)) => Ok(HttpFault::Slow(milliseconds(number)?)),
        Some(("error", number)) => match number.parse() {
            Ok(status) if (400..600).contains(&status) => Ok(HttpFault::Error(status)),
            _ => Err(format!("{number:?} is no status from 400 to 599")),
        },
        _ => Err(unknown(
            "HTTP fault",
            text,
            "ok, hang, slow:MS, error:STATUS, reset, reset_mid_body, garbage",
        )),
    }
}

fn leg(text: &str) -> Result<Option<Side>, String> {
    match text {
        "" => Ok(None),
        "prefill" => Ok(Some(Side::Prefill)),
        "decode" => Ok(Some(Side::Decode)),
        _ => Err(unknown("leg", text, "prefill, decode, or nothing for both")),
    }
}

fn transfer_fault(text: &str) -> Result<TransferFault, String> {
    match text.split_once(':') {
        None if text == "ok" => Ok(TransferFault::None),
        None if text == "fail" => Ok(TransferFault::Fail),
        Some(("slow", number)) => Ok(TransferFault::Slow(milliseconds(number)?)),
        _ => Err(unknown("transfer fault", text, "ok, fail, slow:MS")),
    }
}

fn lease_fault(text: &str) -> Result<bool, String> {
    match text {
        "ok" => Ok(false),
        "expired" => Ok(true),
        _ => Err(unknown("lease fault", text, "ok, expired")),
    }
}

fn gone_fault(text: &str) -> Result<bool, String> {
    match text {
        "ok" => Ok(false),
        "garbage" => Ok(true),
        _ => Err(unknown("fault of what is gone", text, "ok, garbage")),
    }
}

fn keep_alive(value: &Value) -> Result<Option<Duration>, String> {
    match value {
        Value::Null => Ok(None),
        _ => match value.as_u64().map(Duration::from_millis).filter(|time| *time <= MAX_DELAY) {
            Some(time) => Ok(Some(time)),
            None => Err("`keep_alive_ms` must be a number of milliseconds or null".to_owned()),
        },
    }
}

/// Milliseconds up to the longest delay.
pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().map(Duration::from_millis).filter(|time| *time <= MAX_DELAY);
    time.ok_or_else(|| format!("{text:?} is no time from 0 to {} ms", MAX_DELAY.as_millis()))
}

#[cfg(test)]
mod tests;
