//! Writes the lines of the audit.

use std::fs::File;
use std::future::pending;
use std::io::Write as _;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::limit::Limit;
use super::{Noted, lost, now};

/// Lines that are written at one time.
const BATCH: usize = 64;

/// What takes lines and writes them: into a file, or the log.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: mpsc::Receiver<Noted>,
    file: Option<Arc<File>>,
    limit: Limit,
}

impl Writer {
    pub(super) fn new(queue: mpsc::Receiver<Noted>, file: Option<File>) -> Self {
        for reason in ["queue_full", "rate", "disk"] {
            lost(reason, 0);
        }
        Self { queue, file: file.map(Arc::new), limit: Limit::new() }
    }

    /// Writes until nobody hands in lines any more.
    pub(crate) async fn run(mut self) {
        loop {
            let mut batch = Vec::new();
            let due = self.limit.due();
            let told = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                taken = self.queue.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        return;
                    }
                }
                () = told => {}
            }
            let (lines, waiting) = self.lines(batch);
            self.write(lines).await;
            for written in waiting {
                // Who does not wait any more needs no answer.
                let _ = written.send(());
            }
        }
    }

    fn lines(&mut self, batch: Vec<Noted>) -> (Vec<String>, Vec<tokio::sync::oneshot::Sender<()>>) {
        let (mut lines, mut waiting) = (Vec::new(), Vec::new());
        if let Some(count) = self.limit.told() {
            let line = json!({"time": now(), "result": "refused_left_out", "count": count});
            lines.push(line.to_string());
        }
        for mut noted in batch {
            match noted.written.take() {
                Some(written) => waiting.push(written),
                None if !self.limit.takes() => {
                    lost("rate", 1);
                    continue;
                }
                None => {}
            }
            lines.push(noted.line());
        }
        (lines, waiting)
    }

    async fn write(&self, lines: Vec<String>) {
        let Some(file) = &self.file else {
            for line in lines {
                tracing::info!(target: "kvasir_audit", "{line}");
            }
            return;
        };
        let file = Arc::clone(file);
        let write = move || {
            for line in lines {
                // One write a line: lines of several processes do not mix.
                if let Err(error) = (&*file).write_all(format!("{line}\n").as_bytes()) {
                    lost("disk", 1);
                    tracing::error!(%error, line, "the audit log cannot be written");
                }
            }
        };
        let _ = tokio::task::spawn_blocking(write).await;
    }
}
