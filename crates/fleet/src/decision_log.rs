//! The decision log: what drives the pools' selections, written to files by a thread of its own.
//!
//! A pool's lines are queued under the lock of its selection, so that they are in the order in
//! which they drove it. Nobody waits for the disk: what finds the queue full, or no disk to be
//! written to, is left out, counted, and said at its place in the log.

mod account;
mod entry;
mod files;
mod queue;
mod series;
mod writer;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvasir_balance::record::Start;

pub(crate) use self::account::{Account, LogState};
pub(crate) use self::entry::{Entry, MadeAt, Noted, What, micros};
use self::queue::{Bounds, Queue};
use self::writer::Writer;

/// How long a stopping gateway waits for the disk.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Where decision logs are written, and how much of them is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionLogSpec {
    /// The directory; made where it is not there. One gateway writes there.
    pub directory: PathBuf,
    /// A file that has grown to so many bytes is followed by another one. It may exceed them by
    /// its first decision.
    pub max_bytes: u64,
    /// Files kept of each pool, the one being written included.
    pub files: usize,
}

/// The decision logs of all pools of a gateway.
#[derive(Debug)]
pub struct DecisionLog {
    queue: Arc<Queue>,
    /// Whether the end was waited for; once is enough.
    closed: AtomicBool,
    /// Held until the end: one gateway writes there.
    _lock: File,
}

/// A log that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum DecisionLogError {
    /// The directory cannot be made or written to.
    #[error("{}: {error}", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process writes there.
    #[error("{}: another gateway writes its decision log there", .0.display())]
    Taken(PathBuf),
    /// There is no thread to write it.
    #[error("no thread to write it: {0}")]
    Thread(io::Error),
}

/// One pool's log.
#[derive(Debug)]
pub(crate) struct PoolLog {
    queue: Arc<Queue>,
    account: Arc<Account>,
    /// Lines that found no room since the last that did.
    missing: u64,
}

impl DecisionLog {
    /// Starts a log. Files come with the first lines.
    ///
    /// # Errors
    /// When the directory cannot be made or written to, or another process writes there.
    pub fn open(spec: DecisionLogSpec) -> Result<Self, DecisionLogError> {
        Self::bounded(spec, Bounds::default())
    }

    fn bounded(spec: DecisionLogSpec, bounds: Bounds) -> Result<Self, DecisionLogError> {
        let lock = lock(&spec.directory)?;
        let queue = Arc::new(Queue::new(bounds));
        let writer = Writer::new(Arc::clone(&queue), spec);
        std::thread::Builder::new()
            .name("decision-log".to_owned())
            .spawn(move || writer.run())
            .map_err(DecisionLogError::Thread)?;
        Ok(Self { queue, closed: AtomicBool::new(false), _lock: lock })
    }

    /// The log of a pool whose selection begins so.
    pub(crate) fn pool(&self, start: Start) -> PoolLog {
        let account = Arc::new(Account::new(start));
        PoolLog { queue: Arc::clone(&self.queue), account, missing: 0 }
    }

    /// Writes what is queued and ends; what comes later is left out. Waits for a slow disk for
    /// five seconds at most, and the first time only; `false` if that was not enough.
    pub fn close(&self) -> bool {
        self.queue.close();
        let again = self.closed.swap(true, Ordering::Relaxed);
        self.queue.wait_for_end(if again { Duration::ZERO } else { LAST_LINES })
    }
}

impl Drop for DecisionLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl PoolLog {
    /// What became of its lines.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Queues a line, if there is room.
    pub(crate) fn push(&mut self, what: What) {
        let entry = Entry { account: Arc::clone(&self.account), missing: self.missing, what };
        if self.queue.push(entry) {
            self.missing = 0;
        } else {
            self.missing += 1;
            self.account.dropped_in_queue();
        }
    }
}

impl Drop for PoolLog {
    /// Lines missing at the end are said too, and the file is closed.
    fn drop(&mut self) {
        let (account, missing) = (Arc::clone(&self.account), self.missing);
        self.queue.push(Entry { account, missing, what: What::End });
    }
}

fn lock(directory: &Path) -> Result<File, DecisionLogError> {
    let failed = |error| DecisionLogError::Directory { directory: directory.to_owned(), error };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let path = directory.join(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DecisionLogError::Taken(directory.to_owned())),
        // Some file systems have no locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests;
