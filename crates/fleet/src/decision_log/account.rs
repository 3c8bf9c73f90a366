//! What became of one pool's lines, for metrics.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvasir_balance::record::Start;
use parking_lot::Mutex;

/// One pool's log as its pool, its writer and metrics share it.
#[derive(Debug)]
pub(crate) struct Account {
    start: Start,
    lines: AtomicU64,
    bytes: AtomicU64,
    dropped_in_queue: AtomicU64,
    dropped_at_disk: AtomicU64,
    state: Mutex<LogState>,
    /// Old files could not be removed when the last one was begun.
    not_pruned: AtomicBool,
}

/// Whether a log can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogState {
    /// It is, as far as was tried.
    #[default]
    Writing,
    /// It is not, and tried again every few seconds.
    Failing(&'static str),
}

impl LogState {
    /// The state of a log whose disk says this.
    pub(super) fn of(error: &io::Error) -> Self {
        use io::ErrorKind;
        Self::Failing(match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                "disk_full"
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "not_permitted",
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                "no_directory"
            }
            _ => "io",
        })
    }

    /// State and reason as words for metrics.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Writing => ("writing", ""),
            Self::Failing(reason) => ("failing", reason),
        }
    }
}

impl Account {
    pub(super) fn new(start: Start) -> Self {
        Self {
            start,
            lines: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dropped_in_queue: AtomicU64::new(0),
            dropped_at_disk: AtomicU64::new(0),
            state: Mutex::default(),
            not_pruned: AtomicBool::new(false),
        }
    }

    pub(super) fn start(&self) -> &Start {
        &self.start
    }

    /// Lines that are in files.
    pub(crate) fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Bytes written to files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Lines left out, by reason.
    pub(crate) fn dropped(&self) -> [(&'static str, u64); 2] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("queue_full", read(&self.dropped_in_queue)), ("disk", read(&self.dropped_at_disk))]
    }

    /// State and reason as words for metrics. A log that is written may still keep too many files.
    pub(crate) fn words(&self) -> (&'static str, &'static str) {
        match *self.state.lock() {
            LogState::Writing if self.not_pruned.load(Ordering::Relaxed) => {
                ("writing", "not_pruned")
            }
            state => state.words(),
        }
    }

    pub(super) fn set_not_pruned(&self, not_pruned: bool) {
        self.not_pruned.store(not_pruned, Ordering::Relaxed);
    }

    /// The state before.
    pub(super) fn set_state(&self, state: LogState) -> LogState {
        std::mem::replace(&mut self.state.lock(), state)
    }

    pub(super) fn dropped_in_queue(&self) {
        self.dropped_in_queue.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped_at_disk(&self, lines: u64) {
        self.dropped_at_disk.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn written(&self, lines: u64, bytes: u64) {
        self.lines.fetch_add(lines, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
