//! A line for every change that was asked for: who, what, and how it ended.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use http::Method;
use kvasir_prompt::CivilTime;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::auth::Role;
use crate::error::ApiError;

/// More of a body is not kept.
const MAX_BODY: usize = 4 << 10;
/// Keys whose values are secrets: their names have one of these in them.
const SECRET: [&str; 5] = ["api_key", "token", "secret", "password", "authorization"];
/// Keys that name where a secret is.
const PLACES: [&str; 2] = ["_env", "_file"];

/// Where lines go.
#[derive(Debug)]
pub(crate) enum Audit {
    /// Into the log.
    Log,
    /// Into a file.
    File(Mutex<File>),
}

/// One request for a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) role: Option<Role>,
    pub(crate) remote: SocketAddr,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) result: Result<u16, &'a ApiError>,
}

impl Audit {
    /// Opens the file, for its owner alone where it is new.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self::Log) };
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Self::File(Mutex::new(options.open(path)?)))
    }

    /// Writes a line; a file that cannot be written to is said so in the log, with the line.
    pub(crate) fn note(&self, entry: &Entry<'_>) {
        let line = entry.line().to_string();
        match self {
            Self::Log => tracing::info!(target: "kvasir_audit", "{line}"),
            Self::File(file) => {
                // One write a line: lines of several processes do not mix.
                let written = file.lock().write_all(format!("{line}\n").as_bytes());
                if let Err(error) = written {
                    metrics::counter!("kvasir_admin_audit_dropped_total").increment(1);
                    tracing::error!(%error, line, "the audit log cannot be written");
                }
            }
        }
    }
}

impl Entry<'_> {
    fn line(&self) -> Value {
        let (status, result) = match self.result {
            Ok(status) => (status, "done"),
            Err(error) => (error.status.as_u16(), error.code),
        };
        json!({
            "time": now(),
            "role": match self.role {
                Some(Role::Writer) => "write",
                Some(Role::Reader) => "read",
                Some(Role::Anybody) => "anybody",
                None => "unknown",
            },
            "token": self.role.map(Role::token),
            "remote": self.remote.to_string(),
            "method": self.method.as_str(),
            "path": self.path,
            "body": masked(self.body),
            "status": status,
            "result": result,
        })
    }
}

/// Now: RFC 3339, UTC.
pub(crate) fn now() -> String {
    let CivilTime { year, month, day, hour, minute, second, .. } = CivilTime::now_utc();
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A body without its secrets, and not too long.
fn masked(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
        return format!("{} bytes that are no JSON", body.len()).into();
    };
    mask(&mut value);
    let text = value.to_string();
    if text.len() <= MAX_BODY {
        return value;
    }
    let end = (0..=MAX_BODY).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end]).into()
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let name = key.to_ascii_lowercase();
                let is_place = PLACES.iter().any(|end| name.ends_with(end));
                let is_text = value.is_string() || value.is_array();
                if is_text && !is_place && SECRET.iter().any(|word| name.contains(word)) {
                    *value = "***".into();
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_show_and_long_bodies_are_cut() {
        let body =
            br#"{"model":"m","api_key":"sk-1","api_key_env":"KEY","x":[{"Write_Token":"t"}]}"#;
        let shown = masked(body);
        assert_eq!(shown["api_key"], "***");
        assert_eq!(shown["api_key_env"], "KEY");
        assert_eq!(shown["x"][0]["Write_Token"], "***");
        assert_eq!(masked(b"sk-1"), "4 bytes that are no JSON");
        let long = json!({"m": "é".repeat(MAX_BODY)}).to_string();
        assert!(masked(long.as_bytes()).as_str().unwrap().len() <= MAX_BODY + "…".len());
    }
}
