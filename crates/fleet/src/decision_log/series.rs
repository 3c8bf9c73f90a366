//! One pool's log on disk: a series of files, and what it does when the disk fails.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_balance::record::{Line, Start};

use super::files::{Create, Files, LogFile};
use super::{Account, DecisionLogSpec, Entry, LogState};

/// How long lines may wait in memory.
pub(super) const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// So many bytes are written at once.
const FLUSH_BYTES: usize = 64 << 10;
/// A disk that failed is tried again after this.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// One pool's files.
pub(super) struct Series {
    account: Arc<Account>,
    files: Files,
    create: Create,
    max_bytes: u64,
    keep: usize,
    open: Option<Open>,
    /// Lines of the run in files, those missing there included: [`Start::continues`].
    lines: u64,
    /// Lines left out since, not said yet.
    missing: u64,
    retry_at: Option<Instant>,
}

/// A file with what is to be written to it.
struct Open {
    file: Box<dyn LogFile>,
    path: PathBuf,
    /// Bytes that are in it.
    written: u64,
    /// Whether it has, or will have, more than its beginning.
    has_entries: bool,
    buffer: Buffer,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Lines in it that drove the selection.
    own: u64,
    /// Those, and the lines it says are missing.
    entries: u64,
    since: Option<Instant>,
}

impl Buffer {
    fn push(&mut self, line: &[u8], entries: u64, own: u64, now: Instant) {
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
        self.entries += entries;
        self.own += own;
        self.since.get_or_insert(now);
    }
}

impl Series {
    pub(super) fn new(account: Arc<Account>, spec: &DecisionLogSpec, create: Create) -> Self {
        Self {
            files: Files::of(&spec.directory, &account.start().model),
            account,
            create,
            max_bytes: spec.max_bytes,
            keep: spec.files.max(1),
            open: None,
            lines: 0,
            missing: 0,
            retry_at: None,
        }
    }

    pub(super) fn is_of(&self, account: &Arc<Account>) -> bool {
        Arc::ptr_eq(&self.account, account)
    }

    /// Takes the next line.
    pub(super) fn entry(&mut self, entry: &Entry, now: Instant) {
        self.missing += entry.missing;
        let Some(line) = entry.what.line() else { return };
        if self.retry_at.is_some_and(|at| now < at) {
            return self.lost(1);
        }
        if let Err(error) = self.take(&line, now) {
            self.lost(1);
            self.fail(&error, now);
        }
        let is_long = |open: &Open| open.buffer.bytes.len() >= FLUSH_BYTES;
        if self.open.as_ref().is_some_and(is_long) {
            self.try_flush(now);
        }
    }

    /// Writes what has waited for long, and tries again what failed; when it wants to be asked next.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Instant> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.flush_at()) {
            self.try_flush(now);
        }
        if due(self.retry_at) {
            self.say_all(now);
        }
        [self.flush_at(), self.retry_at].into_iter().flatten().min()
    }

    /// Writes what it has.
    pub(super) fn end(&mut self, now: Instant) {
        self.say_all(now);
        self.try_flush(now);
    }

    fn flush_at(&self) -> Option<Instant> {
        self.open.as_ref()?.buffer.since.map(|since| since + FLUSH_AFTER)
    }

    /// Says what is missing, if anything is: that shows whether the disk can be written to again.
    fn say_all(&mut self, now: Instant) {
        self.retry_at = None;
        if self.missing == 0 {
            return;
        }
        match self.make_room(0, now) {
            Ok(()) => {
                self.say_missing(now);
                self.try_flush(now);
            }
            Err(error) => self.fail(&error, now),
        }
    }

    /// Puts a line into the buffer of a file.
    fn take(&mut self, line: &Line, now: Instant) -> io::Result<()> {
        let text = serde_json::to_vec(line)?;
        self.make_room(text.len(), now)?;
        self.retry_at = None;
        self.say_missing(now);
        if let Some(open) = &mut self.open {
            let entries = line.entries();
            open.has_entries = true;
            open.buffer.push(&text, entries, entries, now);
            self.lines += entries;
        }
        Ok(())
    }

    fn say_missing(&mut self, now: Instant) {
        let lines = std::mem::take(&mut self.missing);
        let Some(open) = self.open.as_mut().filter(|_| lines > 0) else { return };
        if let Ok(text) = serde_json::to_vec(&Line::Missing { lines }) {
            open.buffer.push(&text, lines, 0, now);
            self.lines += lines;
        }
    }

    /// Makes sure that there is a file with room for a line of so many bytes.
    fn make_room(&mut self, bytes: usize, now: Instant) -> io::Result<()> {
        let is_full = self.open.as_ref().is_some_and(|open| {
            let held = open.written.saturating_add(open.buffer.bytes.len() as u64);
            // A file without any line that matters is not full.
            held.saturating_add(bytes as u64) >= self.max_bytes && open.has_entries
        });
        if is_full {
            self.flush()?;
            self.open = None;
        }
        if self.open.is_some() {
            return Ok(());
        }
        let start = Start { continues: self.lines, ..self.account.start().clone() };
        let text = serde_json::to_vec(&Line::Start(start))?;
        let pruned = self.files.prune(self.keep.saturating_sub(1));
        self.account.set_not_pruned(pruned.is_err());
        if let Err(error) = pruned {
            tracing::warn!(model = self.account.start().model, %error,
                "old decision logs cannot be removed; more are kept than wanted");
        }
        let (file, path) = self.files.next(self.create)?;
        let mut buffer = Buffer::default();
        buffer.push(&text, 0, 0, now);
        self.open = Some(Open { file, path, written: 0, has_entries: false, buffer });
        Ok(())
    }

    fn try_flush(&mut self, now: Instant) {
        if let Err(error) = self.flush() {
            self.fail(&error, now);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let buffer = &mut open.buffer;
        if buffer.bytes.is_empty() {
            return Ok(());
        }
        open.file.write_all(&buffer.bytes)?;
        open.file.flush()?;
        let bytes = buffer.bytes.len() as u64;
        open.written += bytes;
        self.account.written(buffer.own, bytes);
        buffer.bytes.clear();
        (buffer.own, buffer.entries, buffer.since) = (0, 0, None);
        if self.account.set_state(LogState::Writing) != LogState::Writing {
            let (model, file) = (&self.account.start().model, open.path.display().to_string());
            tracing::info!(model, file, "the decision log is written again");
        }
        Ok(())
    }

    /// Gives up what is not written, and the file: the next one begins anew.
    fn fail(&mut self, error: &io::Error, now: Instant) {
        if let Some(Open { mut file, path, written, buffer, .. }) = self.open.take() {
            // A part of it may be there. Where that cannot be mended, the file ends with it.
            let _ = file.cut(written);
            if written == 0 {
                let _ = std::fs::remove_file(path);
            }
            self.lines = self.lines.saturating_sub(buffer.entries);
            self.missing += buffer.entries.saturating_sub(buffer.own);
            self.lost(buffer.own);
        }
        self.retry_at = Some(now + RETRY_AFTER);
        let state = LogState::of(error);
        if self.account.set_state(state) != state {
            let (_, reason) = state.words();
            tracing::error!(model = self.account.start().model, reason, %error,
                "the decision log cannot be written; requests go on, and it is tried again");
        }
    }

    fn lost(&mut self, lines: u64) {
        self.missing += lines;
        self.account.dropped_at_disk(lines);
    }
}
