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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use kvasir_config::hide_secrets;
use kvasir_prompt::{CivilTime, beginning};
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

/// Where lines are handed in.
#[derive(Clone, Debug)]
pub(crate) struct Audit(mpsc::Sender<Noted>, Unwritten);

/// How many lines were handed in and are not written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwritten(Arc<AtomicU64>);

impl Unwritten {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self, lines: u64) {
        self.0.fetch_sub(lines, Ordering::Relaxed);
    }

    /// Nobody waits for them any more.
    pub(crate) fn are_lost(&self) {
        let lines = self.0.load(Ordering::Relaxed);
        if lines > 0 {
            lost("queue_full", lines);
            tracing::error!(lines, "the audit's last lines are lost: the disk is too slow");
        }
    }
}

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
        let unwritten = Unwritten::default();
        Ok((Self(sender, unwritten.clone()), Writer::new(queue, file, unwritten)))
    }

    /// A request was refused for who asked it.
    pub(crate) fn denied(&self, entry: Entry) {
        let noted = Noted { time: now(), entry, written: None };
        match self.0.try_reserve() {
            Ok(place) => {
                self.1.add();
                place.send(noted);
            }
            Err(_) => lost("queue_full", 1),
        }
    }

    /// A change was made, or could not be. Returns when its line is written, or the disk takes too long
    /// for anybody to wait.
    pub(crate) async fn changed(&self, entry: Entry) {
        let (written, is_written) = oneshot::channel();
        let noted = Noted { time: now(), entry, written: Some(written) };
        match timeout(PATIENCE, self.0.reserve()).await {
            Ok(Ok(place)) => {
                self.1.add();
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
        let (method, path, body) =
            (method.clone(), cut(&without_user(path), MAX_PATH), masked(body));
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

/// A path without the user and password of the engine in it, if somebody wrote them there.
fn without_user(path: &str) -> String {
    let Some((before, engine)) = path.split_once("/endpoints/") else { return path.to_owned() };
    let ends = ["@", "%40"].map(|at| engine.rfind(at).map(|found| found + at.len()));
    match ends.into_iter().flatten().max().and_then(|end| engine.get(end..)) {
        Some(host) => format!("{before}/endpoints/***@{host}"),
        None => path.to_owned(),
    }
}

/// A text that is not too long.
fn cut(text: &str, most: usize) -> String {
    match beginning(text, most) {
        whole if whole.len() == text.len() => whole.to_owned(),
        cut => format!("{cut}…"),
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
    hide_secrets(&mut value);
    let text = value.to_string();
    if text.len() <= MAX_BODY { value } else { cut(&text, MAX_BODY).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(role: Option<Role>) -> Entry {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        Entry::of(role, remote, (&Method::PATCH, "/p"), b"", Ok(200))
    }

    fn file(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("kvasir-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[tokio::test]
    async fn at_a_stop_all_lines_are_written_and_what_was_left_out_is_told() {
        let path = file("audit-stop");
        let (audit, writer) = Audit::open(Some(&path)).unwrap();
        let unwritten = writer.unwritten();
        for _ in 0..60 {
            audit.denied(entry(None));
        }
        let (close, closed) = oneshot::channel();
        drop(close);
        // As long as somebody could hand in lines.
        writer.run(closed).await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 51, "{text}");
        assert!(text.ends_with("\n") && text.contains(r#""count":10"#), "{text}");
        assert_eq!(unwritten.0.load(Ordering::Relaxed), 0);
        audit.denied(entry(None));
        assert_eq!(unwritten.0.load(Ordering::Relaxed), 0, "nobody takes it: it is lost at once");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_not_written_is_known() {
        let (audit, writer) = Audit::open(None).unwrap();
        (0..3).for_each(|_| audit.denied(entry(None)));
        assert_eq!(writer.unwritten().0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn secrets_do_not_show_and_long_bodies_are_cut() {
        let body =
            br#"{"model":"m","api_key":{"a":"sk-1"},"api_key_env":"KEY","x":[{"Write_Token":7}],
            "tokenizer_dir":"/d","url":"http://u:pw@h:1"}"#;
        let shown = masked(body);
        assert_eq!(shown["api_key"], "***");
        assert_eq!(shown["api_key_env"], "KEY");
        assert_eq!(shown["x"][0]["Write_Token"], "***");
        assert_eq!(shown["tokenizer_dir"], "/d");
        assert_eq!(shown["url"], "http://***@h:1");
        let path = "/api/v1/pools/m%40v1/endpoints/http:%2F%2Fu:pw%40h:1";
        assert_eq!(without_user(path), "/api/v1/pools/m%40v1/endpoints/***@h:1");
        assert_eq!(without_user("/api/v1/pools/a@b"), "/api/v1/pools/a@b");
        assert_eq!(masked(b"sk-1"), "4 bytes that are no JSON");
        let long = json!({"m": "é".repeat(MAX_BODY)}).to_string();
        assert!(masked(long.as_bytes()).as_str().unwrap().len() <= MAX_BODY + "…".len());
    }
}
