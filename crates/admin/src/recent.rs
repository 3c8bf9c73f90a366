//! What a gateway decided lately: a bounded tail, counts, and the last half hour.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use crate::stats::Stats;
use crate::timeline::Timeline;

/// Decisions that are kept.
pub(crate) const KEPT: usize = 1024;
/// Names of requests that are longer are cut.
const MAX_NAME: usize = 128;

/// One request, as it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Decided {
    /// When it ended: RFC 3339, UTC; filled in where it is kept.
    pub time: String,
    /// The client's name for it.
    pub request_id: Option<String>,
    /// The API's path.
    pub path: String,
    /// The pool that served it.
    pub pool: String,
    /// The model asked for.
    pub model: String,
    /// The endpoint that answered.
    pub endpoint: Option<String>,
    /// The endpoint that computed the prompt, where that is another.
    pub prefill_endpoint: Option<String>,
    /// How it was served, in pools that split requests.
    pub plan: Option<&'static str>,
    /// Its number in the decision log, where there is one.
    pub decision_id: Option<u64>,
    /// The policy that chose.
    pub policy: &'static str,
    /// Why.
    pub reason: &'static str,
    /// What was special about it; empty for nothing.
    pub detail: &'static str,
    /// Why policies had no say, by policy.
    pub misses: Vec<(&'static str, &'static str)>,
    /// How far the endpoint's events were believed.
    pub trust: String,
    /// How far the prompt was known: `tokens`, `text` or `none`.
    pub level: &'static str,
    /// `exact`, or why its tokens are not known exactly.
    pub tokens: &'static str,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Tokens of the prompt the endpoint was credited with holding.
    pub overlap: u64,
    /// Tokens beyond that which it was computing for others.
    pub pending: u64,
    /// Endpoints that could have been chosen.
    pub candidates: usize,
    /// Cached tokens the engine reports.
    pub reported_cached_tokens: Option<u64>,
    /// Prompt tokens the engine reports.
    pub reported_prompt_tokens: Option<u64>,
    /// Whether report and prediction can be compared.
    pub comparable: bool,
    /// Engines that were asked.
    pub attempts: u32,
    /// The answer's status.
    pub status: u16,
    /// How it ended.
    pub outcome: &'static str,
    /// Milliseconds until the first data of the answer.
    pub first_data_ms: Option<f64>,
    /// Milliseconds in all.
    pub total_ms: f64,
}

/// The last decisions and the counts of all.
#[derive(Debug, Default)]
pub struct Recent {
    tail: Mutex<VecDeque<Arc<Decided>>>,
    stats: Stats,
    timeline: Timeline,
}

impl Recent {
    /// With these counts to go on from.
    #[must_use]
    pub fn with(stats: Stats) -> Self {
        Self { stats, ..Self::default() }
    }

    /// A request ended.
    pub fn note(&self, mut decided: Decided) {
        self.stats.count(&decided);
        self.timeline.count(&decided);
        decided.time = crate::audit::now();
        if let Some(id) = &mut decided.request_id
            && id.len() > MAX_NAME
        {
            let end = (0..=MAX_NAME).rev().find(|end| id.is_char_boundary(*end)).unwrap_or(0);
            id.truncate(end);
        }
        let mut tail = self.tail.lock();
        if tail.len() >= KEPT {
            tail.pop_front();
        }
        tail.push_back(Arc::new(decided));
    }

    /// The latest, newest first: of one pool, or of all.
    #[must_use]
    pub fn latest(&self, limit: usize, pool: Option<&str>) -> Vec<Arc<Decided>> {
        let tail = self.tail.lock();
        let is_asked =
            |one: &&Arc<Decided>| pool.is_none_or(|pool| one.pool == pool || one.model == pool);
        tail.iter().rev().filter(is_asked).take(limit).cloned().collect()
    }

    /// The counts.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The last half hour.
    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }
}
