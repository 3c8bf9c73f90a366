//! What all connections of a fake engine share: script, cache, load and records.

use super::answer::Asked;
use super::cache::PrefixCache;
use super::config::EngineConfig;
use super::metrics::{Counters, Load};
use super::record::{Ledger, Recorded};
use super::reply::Reply;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Chooses a reply from the request; `None` leaves it to the default.
pub type Handler = Box<dyn Fn(&Recorded) -> Option<Reply> + Send + Sync>;

#[derive(Default)]
struct Script {
    queue: VecDeque<Reply>,
    handler: Option<Arc<Handler>>,
    default: Option<Reply>,
    pages: HashMap<String, Reply>,
}

pub(super) struct State {
    pub(super) config: EngineConfig,
    pub(super) ledger: Arc<Ledger>,
    script: Mutex<Script>,
    cache: Mutex<PrefixCache>,
    counters: Mutex<Counters>,
    load: Mutex<Load>,
    started_at: Mutex<f64>,
    cache_events: Mutex<Option<Vec<serde_json::Value>>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("config", &self.config).finish_non_exhaustive()
    }
}

impl State {
    pub(super) fn new(config: EngineConfig) -> Self {
        Self {
            ledger: Arc::new(Ledger::new(config.max_recorded)),
            script: Mutex::default(),
            cache: Mutex::new(PrefixCache::new(config.block_size, config.gpu_blocks)),
            counters: Mutex::default(),
            load: Mutex::default(),
            started_at: Mutex::new(unix_seconds()),
            cache_events: Mutex::default(),
            config,
        }
    }

    /// A new process in the same place: empty cache, counters from zero, later start.
    pub(super) fn new_life(&self) {
        self.reset_cache();
        *self.counters.lock() = Counters::default();
        let mut started = self.started_at.lock();
        // Two lives within the clock's resolution must still differ.
        *started = unix_seconds().max(*started + 0.01);
    }

    pub(super) fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.lock().queue.extend(replies);
    }

    pub(super) fn set_handler(&self, handler: Option<Handler>) {
        self.script.lock().handler = handler.map(Arc::new);
    }

    pub(super) fn set_default(&self, reply: Reply) {
        self.script.lock().default = Some(reply);
    }

    pub(super) fn set_page(&self, path: &str, reply: Option<Reply>) {
        let pages = &mut self.script.lock().pages;
        match reply {
            Some(reply) => pages.insert(path.to_owned(), reply),
            None => pages.remove(path),
        };
    }

    pub(super) fn page(&self, path: &str) -> Option<Reply> {
        self.script.lock().pages.get(path).cloned()
    }

    pub(super) fn push_cache_events(&self, events: Vec<serde_json::Value>) {
        self.cache_events.lock().get_or_insert_default().extend(events);
    }

    /// Takes what waits; `None` where there never was anything.
    pub(super) fn drain_cache_events(&self) -> Option<Vec<serde_json::Value>> {
        self.cache_events.lock().as_mut().map(std::mem::take)
    }

    /// The next scripted reply: queue, then handler, then default.
    pub(super) fn next_reply(&self, request: &Recorded) -> Reply {
        let (handler, default) = {
            let script = &mut *self.script.lock();
            if let Some(reply) = script.queue.pop_front() {
                return reply;
            }
            (script.handler.clone(), script.default.clone())
        };
        // The handler runs unlocked: it may script further replies.
        handler.and_then(|h| h(request)).or(default).unwrap_or(Reply::Default)
    }

    /// Runs a prompt through the cache and tells the sink; gives the cached tokens.
    pub(super) fn prefill(&self, asked: &Asked) -> usize {
        let mut cached = 0;
        if let Some(ids) = &asked.ids {
            let mut cache = self.cache.lock();
            let lookup = cache.admit(&asked.root, ids);
            cached = lookup.cached_tokens;
            // Under the lock, so that a parent is always reported before its children.
            if let (Some(stored), Some(sink)) = (lookup.stored, &self.config.sink) {
                sink(stored);
            }
        }
        let counters = &mut *self.counters.lock();
        counters.prompt_tokens += asked.prompt_tokens as u64;
        counters.cache_queries += asked.prompt_tokens as u64;
        counters.cache_hits += cached as u64;
        cached
    }

    /// Counts an answer that is about to be given.
    pub(super) fn generated(&self, tokens: usize) {
        let counters = &mut *self.counters.lock();
        counters.generation_tokens += tokens as u64;
        counters.finished += 1;
    }

    pub(super) fn reset_cache(&self) {
        self.cache.lock().clear();
    }

    pub(super) fn cached_blocks(&self) -> usize {
        self.cache.lock().len()
    }

    pub(super) fn counters(&self) -> Counters {
        *self.counters.lock()
    }

    pub(super) fn load(&self) -> Load {
        *self.load.lock()
    }

    pub(super) fn set_load(&self, load: Load) {
        *self.load.lock() = load;
    }

    pub(super) fn started_at(&self) -> f64 {
        *self.started_at.lock()
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
