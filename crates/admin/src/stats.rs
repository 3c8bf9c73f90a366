//! Counts of decisions by pool and hour.
//!
//! They are kept for thirty days and read in memory; a store gets those that changed now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::recent::Decided;

/// Hours that are kept.
const KEPT_HOURS: u64 = 30 * 24;
/// Pools and hours that are kept at most.
const MAX_ENTRIES: usize = 65_536;
/// Words that are told apart in one count; what is beyond is `other`.
const MAX_WORDS: usize = 64;

/// The pool and the hour since 1970.
pub(crate) type Key = (String, u64);

/// Counts of one pool in one hour, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Requests an endpoint was chosen for.
    pub requests: u64,
    /// Those whose endpoint was credited with holding, or computing, some of the prompt.
    pub hits: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Tokens endpoints were credited with holding.
    pub predicted_tokens: u64,
    /// Requests whose answer reported cached tokens that can be compared, and
    pub judged: u64,
    /// the tokens predicted of them, and
    pub judged_predicted_tokens: u64,
    /// those reported.
    pub judged_reported_tokens: u64,
    /// By kind of decision (`kind`).
    pub by_decision: BTreeMap<String, u64>,
    /// By policy and reason: `policy/reason`.
    pub by_reason: BTreeMap<String, u64>,
    /// By policy and why it had no say: `policy/miss`.
    pub by_miss: BTreeMap<String, u64>,
}

/// Counts by pool and hour.
#[derive(Debug, Default)]
pub struct Stats(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Shared with whoever adds them up, which is not done under the lock that requests take.
    entries: BTreeMap<Key, Arc<Tally>>,
    dirty: BTreeSet<Key>,
}

/// A decision in the words of E4, where it has one: `affinity`, `load_aware`, `round_robin`; else our
/// reason.
fn kind(reason: &'static str) -> &'static str {
    match reason {
        "longest_prefix" | "likely_prefix" => "affinity",
        "least_load" => "load_aware",
        "turn" => "round_robin",
        other => other,
    }
}

fn hour() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / 3600
}

fn add(words: &mut BTreeMap<String, u64>, word: &str, count: u64) {
    if let Some(known) = words.get_mut(word) {
        *known = known.saturating_add(count);
        return;
    }
    let word = if words.len() < MAX_WORDS { word } else { "other" };
    let known = words.entry(word.to_owned()).or_default();
    *known = known.saturating_add(count);
}

impl Tally {
    fn count(&mut self, decided: &Decided) {
        self.requests += 1;
        self.hits += u64::from(decided.overlap + decided.pending > 0);
        self.prompt_tokens = self.prompt_tokens.saturating_add(decided.prompt_tokens);
        self.predicted_tokens = self.predicted_tokens.saturating_add(decided.overlap);
        if let (Some(reported), true) = (decided.reported_cached_tokens, decided.comparable) {
            self.judged += 1;
            self.judged_predicted_tokens =
                self.judged_predicted_tokens.saturating_add(decided.overlap);
            self.judged_reported_tokens = self.judged_reported_tokens.saturating_add(reported);
        }
        add(&mut self.by_decision, kind(decided.reason), 1);
        add(&mut self.by_reason, &format!("{}/{}", decided.policy, decided.reason), 1);
        for (policy, miss) in &decided.misses {
            add(&mut self.by_miss, &format!("{policy}/{miss}"), 1);
        }
    }

    /// Both together.
    fn and(mut self, other: &Self) -> Self {
        for (into, from) in [
            (&mut self.requests, other.requests),
            (&mut self.hits, other.hits),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.predicted_tokens, other.predicted_tokens),
            (&mut self.judged, other.judged),
            (&mut self.judged_predicted_tokens, other.judged_predicted_tokens),
            (&mut self.judged_reported_tokens, other.judged_reported_tokens),
        ] {
            *into = into.saturating_add(from);
        }
        for (into, from) in [
            (&mut self.by_decision, &other.by_decision),
            (&mut self.by_reason, &other.by_reason),
            (&mut self.by_miss, &other.by_miss),
        ] {
            from.iter().for_each(|(word, count)| add(into, word, *count));
        }
        self
    }

    /// The share of requests that were hits; 0 of none.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        share(self.hits, self.requests)
    }

    /// For the API.
    #[must_use]
    pub(crate) fn shown(&self) -> Value {
        json!({
            "requests": self.requests,
            "hits": self.hits,
            "hit_rate": self.hit_rate(),
            "prompt_tokens": self.prompt_tokens.to_string(),
            "predicted_cached_tokens": self.predicted_tokens.to_string(),
            "predicted_token_hit_rate": share(self.predicted_tokens, self.prompt_tokens),
            "judged": {
                "requests": self.judged,
                "predicted_cached_tokens": self.judged_predicted_tokens.to_string(),
                "reported_cached_tokens": self.judged_reported_tokens.to_string(),
            },
            "by_decision": self.by_decision,
            "by_reason": self.by_reason,
            "by_miss": self.by_miss,
        })
    }

    /// In the shape of E4's `routing_stats`.
    #[must_use]
    pub(crate) fn routing_stats(&self) -> Value {
        json!({
            "total": self.requests,
            "hits": self.hits,
            "hit_rate": self.hit_rate(),
            "by_decision": self.by_decision,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

impl Stats {
    /// Going on from what was kept.
    pub(crate) fn of(entries: impl IntoIterator<Item = (Key, Tally)>) -> Self {
        let entries = entries.into_iter().map(|(key, tally)| (key, Arc::new(tally))).collect();
        Self(Mutex::new(Counts { entries, dirty: BTreeSet::new() }))
    }

    pub(crate) fn count(&self, decided: &Decided) {
        self.count_in(decided, hour());
    }

    fn count_in(&self, decided: &Decided, hour: u64) {
        let key = (decided.pool.clone(), hour);
        let mut counts = self.0.lock();
        if !counts.entries.contains_key(&key) {
            counts.forget_before(hour.saturating_sub(KEPT_HOURS));
            if counts.entries.len() >= MAX_ENTRIES {
                return;
            }
        }
        Arc::make_mut(counts.entries.entry(key.clone()).or_default()).count(decided);
        counts.dirty.insert(key);
    }

    /// Of one pool, or of all.
    #[must_use]
    pub fn total(&self, pool: Option<&str>) -> Tally {
        let found = self.found(pool);
        found.iter().fold(Tally::default(), |all, one| all.and(one))
    }

    /// As they are now.
    fn found(&self, pool: Option<&str>) -> Vec<Arc<Tally>> {
        let counts = self.0.lock();
        match pool.map(str::to_owned) {
            Some(pool) => {
                let hours = (pool.clone(), 0)..=(pool, u64::MAX);
                counts.entries.range(hours).map(|(_, one)| Arc::clone(one)).collect()
            }
            None => counts.entries.values().cloned().collect(),
        }
    }

    /// The first hour that is counted, in seconds since 1970.
    #[must_use]
    pub(crate) fn since(&self) -> Option<u64> {
        self.0.lock().entries.keys().map(|(_, hour)| hour * 3600).min()
    }

    /// What changed since this was asked last, and the first hour that is kept.
    pub(crate) fn changed(&self) -> (Vec<(Key, Arc<Tally>)>, u64) {
        let mut counts = self.0.lock();
        let dirty = std::mem::take(&mut counts.dirty);
        let found = dirty.into_iter().filter_map(|key| {
            let tally = Arc::clone(counts.entries.get(&key)?);
            Some((key, tally))
        });
        (found.collect(), hour().saturating_sub(KEPT_HOURS))
    }

    /// These could not be written: they are asked for again.
    pub(crate) fn put_back(&self, keys: impl IntoIterator<Item = Key>) {
        self.0.lock().dirty.extend(keys);
    }
}

impl Counts {
    fn forget_before(&mut self, hour: u64) {
        self.entries.retain(|(_, of), _| *of >= hour);
        self.dirty.retain(|(_, of)| *of >= hour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(pool: &str, reason: &'static str, overlap: u64) -> Decided {
        Decided {
            pool: pool.to_owned(),
            policy: "p",
            reason,
            overlap,
            prompt_tokens: 100,
            reported_cached_tokens: Some(48),
            comparable: true,
            ..Decided::default()
        }
    }

    #[test]
    fn decisions_have_e4s_words_and_hits_are_what_was_credited() {
        let stats = Stats::default();
        stats.count(&decided("a", "longest_prefix", 64));
        stats.count(&decided("a", "least_load", 0));
        stats.count(&decided("b", "turn", 0));
        let shown = stats.total(Some("a")).routing_stats();
        assert_eq!(shown["by_decision"], json!({"affinity": 1, "load_aware": 1}));
        assert_eq!((&shown["total"], &shown["hits"]), (&json!(2), &json!(1)));
        assert!((shown["hit_rate"].as_f64().unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(stats.total(None).requests, 3);
        assert_eq!(stats.total(None).judged_reported_tokens, 144);
        assert_eq!(stats.total(Some("c")), Tally::default());
    }

    #[test]
    fn old_hours_go_and_what_changed_is_told_once() {
        let stats = Stats::default();
        stats.count_in(&decided("a", "turn", 0), 10);
        let now = 10 + KEPT_HOURS;
        stats.count_in(&decided("a", "turn", 0), now);
        assert_eq!(stats.total(None).requests, 2);
        stats.count_in(&decided("a", "turn", 0), now + 1);
        assert_eq!(stats.total(None).requests, 2);
        let (changed, _) = stats.changed();
        assert_eq!(changed.len(), 2);
        assert!(stats.changed().0.is_empty());
        stats.put_back(changed.into_iter().map(|(key, _)| key));
        assert_eq!(stats.changed().0.len(), 2);
    }

    #[test]
    fn what_is_added_up_is_not_held() {
        let stats = Stats::default();
        stats.count(&decided("a", "turn", 0));
        let found = stats.found(None);
        // Neither waits for the other, and what was found stays as it was.
        assert!(stats.0.try_lock().is_some());
        stats.count(&decided("a", "turn", 0));
        assert_eq!((found[0].requests, stats.total(Some("a")).requests), (1, 2));
    }

    #[test]
    fn words_are_bounded() {
        let mut words = BTreeMap::new();
        (0..1000).for_each(|n| add(&mut words, &n.to_string(), 1));
        assert_eq!(words.len(), MAX_WORDS + 1);
        assert_eq!(words["other"], 1000 - MAX_WORDS as u64);
    }
}
