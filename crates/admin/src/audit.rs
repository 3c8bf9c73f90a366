//! A line for every change that was asked for: who, what, and how it ended.
//!
//! Lines are written by a task of their own, so that a slow disk delays no other work. Requests that were
//! refused for who asked them can come as fast as anybody likes: of those some are written, and how many
//! were not.

mod limit;
mod writer;

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::Method;
use kvasir_prompt::CivilTime;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

pub(crate) use self::writer::Writer;
use crate::auth::Role;
use crate::error::ApiError;

/// More of a body is not kept.
const MAX_BODY: usize = 4 << 10;
/// More of a path is not kept.
const MAX_PATH: usize = 1 << 10;
/// Lines that may wait to be written.
const WAITING: usize = 1024;
/// How long a change waits for a place among them, and then for its line to be written.
const PATIENCE: Duration = Duration::from_secs(1);
/// Keys whose values are secrets: their names have one of these in them.
const SECRET: [&str; 5] = ["api_key", "token", "secret", "password", "authorization"];
/// Keys that name where a secret is.
const PLACES: [&str; 2] = ["_env", "_file"];

/// Where lines are handed in.
#[derive(Clone, Debug)]
pub(crate) struct Audit(mpsc::Sender<Noted>);

/// One request for a change.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    role: Option<Role>,
    remote: SocketAddr,
    method: Method,
    path: String,
    /// Without its secrets, and cut: lines that wait take little.
    body: Value,
    status: u16,
    result: &'static str,
}

/// A line that waits to be written.
#[derive(Debug)]
struct Noted {
    time: String,
    entry: Entry,
    /// Who waits for it; nobody for what was refused for who asked it.
    written: Option<oneshot::Sender<()>>,
}

impl Audit {
    /// Opens the file, for its owner alone where it is new; lines go into the log without one.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<(Self, Writer)> {
        let file = path.map(open).transpose()?;
        let (sender, queue) = mpsc::channel(WAITING);
        Ok((Self(sender), Writer::new(queue, file)))
    }

    /// A request was refused for who asked it.
    pub(crate) fn denied(&self, entry: Entry) {
        let noted = Noted { time: now(), entry, written: None };
        if self.0.try_send(noted).is_err() {
            lost("queue_full", 1);
        }
    }

    /// A change was made, or could not be. Returns when its line is written, or the disk takes too long
    /// for anybody to wait.
    pub(crate) async fn changed(&self, entry: Entry) {
        let (written, is_written) = oneshot::channel();
        let noted = Noted { time: now(), entry, written: Some(written) };
        match timeout(PATIENCE, self.0.reserve()).await {
            Ok(Ok(place)) => {
                place.send(noted);
                let _ = timeout(PATIENCE, is_written).await;
            }
            Ok(Err(_)) | Err(_) => {
                lost("queue_full", 1);
                let line = noted.line();
                tracing::error!(line, "the audit does not keep up: a line goes here");
            }
        }
    }
}

/// Lines that are missing where they belong.
fn lost(reason: &'static str, lines: u64) {
    metrics::counter!("kvasir_admin_audit_dropped_total", "reason" => reason).increment(lines);
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl Entry {
    /// A request by somebody who may make changes, if `role` says so, and what it was answered with.
    pub(crate) fn of(
        role: Option<Role>,
        remote: SocketAddr,
        (method, path): (&Method, &str),
        body: &[u8],
        result: Result<u16, &ApiError>,
    ) -> Self {
        let (status, result) = match result {
            Ok(status) => (status, "done"),
            Err(error) => (error.status.as_u16(), error.code),
        };
        let (method, path, body) = (method.clone(), cut(path, MAX_PATH), masked(body));
        Self { role, remote, method, path, body, status, result }
    }
}

impl Noted {
    fn line(&self) -> String {
        let Self { time, entry, .. } = self;
        let line = json!({
            "time": time,
            "role": match entry.role {
                Some(Role::Writer) => "write",
                Some(Role::Reader) => "read",
                Some(Role::Anybody) => "anybody",
                None => "unknown",
            },
            "token": entry.role.map(Role::token),
            "remote": entry.remote.to_string(),
            "method": entry.method.as_str(),
            "path": entry.path,
            "body": entry.body,
            "status": entry.status,
            "result": entry.result,
        });
        line.to_string()
    }
}

/// A text that is not too long.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
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
    if text.len() <= MAX_BODY { value } else { cut(&text, MAX_BODY).into() }
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
