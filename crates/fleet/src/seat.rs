//! A pool's place in the fleet: a reload puts another pool there, and what works for the pool in the
//! background goes on.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;

use crate::engine_client::EngineClient;
use crate::pool::Pool;
use crate::spec::ParityMode;
use crate::task::Task;
use crate::token_oracle::Checker;

/// Where the pool of one model is found.
#[derive(Debug)]
pub(crate) struct Seat {
    pool: ArcSwap<Pool>,
    /// Held while another pool sits down, or the one there looks for its endpoints: what one engine's
    /// monitor learned is not overwritten with what another one saw before.
    changing: Mutex<()>,
    checking: Mutex<Option<Checking>>,
}

/// The comparisons of own tokens with the engines', and what they were begun with.
#[derive(Debug)]
struct Checking {
    mode: ParityMode,
    authorization: Option<HeaderValue>,
    _task: Option<Task>,
}

impl Seat {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        pool.refresh();
        Self { pool: ArcSwap::new(pool), changing: Mutex::default(), checking: Mutex::default() }
    }

    pub(crate) fn pool(&self) -> Arc<Pool> {
        self.pool.load_full()
    }

    /// Puts a pool there.
    pub(crate) fn take(&self, pool: Arc<Pool>) {
        let _alone = self.changing.lock();
        pool.refresh();
        self.pool.store(pool);
    }

    /// The pool there looks which endpoints its engines have now.
    pub(crate) fn refresh(&self) {
        let _alone = self.changing.lock();
        self.pool().refresh();
    }

    /// Compares tokens from now on, as the pool wants it. What is done already goes on, unless it was
    /// begun otherwise or `asked_by` is `another` client.
    pub(crate) fn check(self: &Arc<Self>, asked_by: &EngineClient, another: bool) {
        let pool = self.pool();
        let (mode, authorization) = (pool.token_oracle().mode, pool.authorization().cloned());
        let mut checking = self.checking.lock();
        let same = |known: &Checking| known.mode == mode && known.authorization == authorization;
        if !another && checking.as_ref().is_some_and(same) {
            return;
        }
        let task = Checker::of(self, asked_by).map(|checker| Task::spawn(checker.run()));
        *checking = Some(Checking { mode, authorization, _task: task });
    }

    /// The pool is gone, though requests may still hold it.
    pub(crate) fn end(&self) {
        *self.checking.lock() = None;
    }
}
