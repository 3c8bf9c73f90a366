//! The library calls of `ExaMLOps` E4 (ADR 0039), for programs that come from there.
//!
//! | E4 | here |
//! |---|---|
//! | `prefix_key(system_prompt, session_id, rag_context)` | [`prefix_key`] |
//! | `InferenceGateway(replicas, mode, slo).route(key)` | [`Gateway::route`] |
//! | `measure_hit_rate(gateway, keys)` | [`measure_hit_rate`] |
//! | `disaggregated_route(key, prefill, decode)` | [`disaggregated_route`] |
//!
//! A hit here is what E4 calls one: the replica was sent that key before. It knows no partial prefix,
//! no capacity and no eviction; [`crate::Selection`] with a view of real caches does. Where E4's own
//! code has a flaw, this does what its guide says: with every replica above the limit the least slow
//! one is taken, and decode replicas have to be healthy as others do.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// How [`Gateway`] chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Each replica in turn.
    #[default]
    RoundRobin,
    /// A holder of the key, else the least loaded.
    CacheAware,
}

/// One replica as E4 sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    /// Its name.
    pub id: String,
    /// Requests waiting.
    pub queue_depth: u32,
    /// Used share of its KV cache, 0 to 1.
    pub kv_utilization: f64,
    /// What answers took lately, in milliseconds.
    pub latency_ms: f64,
    /// Whether it answers.
    pub healthy: bool,
    /// Keys it was sent.
    pub prefixes: HashSet<String>,
}

/// Where a key went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// The replica's name.
    pub replica: String,
    /// `affinity`, `load_aware` or `round_robin`.
    pub decision: &'static str,
    /// Whether the replica was sent the key before.
    pub hit: bool,
    /// The key.
    pub prefix_key: String,
}

/// Where the two parts of a request go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disaggregated {
    /// The key.
    pub prefix_key: String,
    /// Who computes the prompt.
    pub prefill_replica: String,
    /// Who generates the answer.
    pub decode_replica: String,
}

/// There is nobody to send a request to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReplicas;

impl std::fmt::Display for NoReplicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the list of replicas is empty")
    }
}

impl std::error::Error for NoReplicas {}

/// Replicas with the keys they were sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    replicas: Vec<Replica>,
    mode: Mode,
    slo_latency_ms: Option<f64>,
    turn: usize,
}

/// The key of a shared prefix: the first 16 hex digits of the SHA-256 of the three texts, joined by
/// U+2016.
#[must_use]
pub fn prefix_key(system_prompt: &str, session_id: &str, rag_context: &str) -> String {
    let joined = [system_prompt, session_id, rag_context].join("\u{2016}");
    let digest = Sha256::digest(joined.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The share of `keys` that hit, sent one after the other; 0 for none.
///
/// # Errors
///
/// [`NoReplicas`].
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn measure_hit_rate<'a>(
    gateway: &mut Gateway,
    keys: impl IntoIterator<Item = &'a str>,
) -> Result<f64, NoReplicas> {
    let (mut hits, mut all) = (0_u64, 0_u64);
    for key in keys {
        hits += u64::from(gateway.route(key)?.hit);
        all += 1;
    }
    Ok(if all == 0 { 0.0 } else { hits as f64 / all as f64 })
}

/// Chooses a replica for each part of a request: a holder of the key, else the least loaded, computes
/// the prompt; the least loaded generates.
///
/// # Errors
///
/// [`NoReplicas`] where either list is empty.
pub fn disaggregated_route(
    key: &str,
    prefill: &[Replica],
    decode: &[Replica],
) -> Result<Disaggregated, NoReplicas> {
    let mut prompts = Gateway::new(prefill.to_vec(), Mode::CacheAware, None);
    let prefill_replica = prompts.route(key)?.replica;
    let generating = least_loaded(decode, eligible(decode, None)).ok_or(NoReplicas)?;
    Ok(Disaggregated {
        prefix_key: key.to_owned(),
        prefill_replica,
        decode_replica: decode[generating].id.clone(),
    })
}

// === impl Replica ===

impl Replica {
    /// A healthy, idle one.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            queue_depth: 0,
            kv_utilization: 0.0,
            latency_ms: 0.0,
            healthy: true,
            prefixes: HashSet::new(),
        }
    }

    /// `queue + 10 * kv + latency_ms / 100`; lower is better.
    #[must_use]
    pub fn load_score(&self) -> f64 {
        f64::from(self.queue_depth) + 10.0 * self.kv_utilization + self.latency_ms / 100.0
    }
}

// === impl Gateway ===

impl Gateway {
    /// `slo_latency_ms` is the latency above which a replica is avoided.
    #[must_use]
    pub fn new(replicas: Vec<Replica>, mode: Mode, slo_latency_ms: Option<f64>) -> Self {
        Self { replicas, mode, slo_latency_ms, turn: 0 }
    }

    /// Its replicas, with the keys they were sent.
    #[must_use]
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Sends a key somewhere.
    ///
    /// # Errors
    ///
    /// [`NoReplicas`].
    pub fn route(&mut self, key: &str) -> Result<Routed, NoReplicas> {
        let eligible = eligible(&self.replicas, self.slo_latency_ms);
        let holds = |place: &usize| self.replicas[*place].prefixes.contains(key);
        let (place, decision) = match self.mode {
            Mode::RoundRobin => {
                let place = self.turn.checked_rem(eligible.len()).map(|at| eligible[at]);
                self.turn = self.turn.wrapping_add(1);
                (place, "round_robin")
            }
            Mode::CacheAware => {
                let holders: Vec<usize> = eligible.iter().copied().filter(holds).collect();
                match least_loaded(&self.replicas, holders) {
                    Some(place) => (Some(place), "affinity"),
                    None => (least_loaded(&self.replicas, eligible), "load_aware"),
                }
            }
        };
        let replica = &mut self.replicas[place.ok_or(NoReplicas)?];
        let hit = !replica.prefixes.insert(key.to_owned());
        Ok(Routed { replica: replica.id.clone(), decision, hit, prefix_key: key.to_owned() })
    }
}

/// The healthy ones within the limit; where none is, the least slow of the healthy; where none is
/// healthy, all.
fn eligible(replicas: &[Replica], slo: Option<f64>) -> Vec<usize> {
    let healthy: Vec<usize> = (0..replicas.len()).filter(|at| replicas[*at].healthy).collect();
    if healthy.is_empty() {
        return (0..replicas.len()).collect();
    }
    let Some(slo) = slo else { return healthy };
    let latency = |place: &usize| replicas[*place].latency_ms;
    let within: Vec<usize> = healthy.iter().copied().filter(|at| latency(at) <= slo).collect();
    if !within.is_empty() {
        return within;
    }
    let least = healthy.iter().map(latency).fold(f64::INFINITY, f64::min);
    healthy.into_iter().filter(|at| latency(at) <= least).collect()
}

/// The first of the least loaded.
fn least_loaded(replicas: &[Replica], places: Vec<usize>) -> Option<usize> {
    let score = |place: &usize| replicas[*place].load_score();
    places.into_iter().min_by(|a, b| score(a).total_cmp(&score(b)))
}
