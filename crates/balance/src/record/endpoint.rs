//! One endpoint as a decision saw it.

use kvasir_inventory::{AbsentReason, Overlap, PartialReason, SuspectReason, Tier, Trust};
use serde::{Deserialize, Serialize};

use crate::exclusion::Exclusion;
use crate::pair::{DEFAULT_TRANSFER_RATE, Role};
use crate::view::{Candidate, EndpointId, Load};

/// One endpoint as a decision saw it: [`Candidate`] with its name, what spoke against it and what was
/// expected of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointRecord {
    /// Its name: URL, and rank where it is one.
    pub name: String,
    /// Why it could not be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusion: Option<String>,
    /// Tokens of the prompt it holds, by tier.
    pub overlap: OverlapRecord,
    /// Tokens of the prompt it is computing for others.
    #[serde(default)]
    pub pending: u32,
    /// How far its events are believed, with the reason.
    pub trust: String,
    /// Requests in flight.
    pub in_flight: u32,
    /// Prompt tokens to be computed before.
    pub queued_prefill_tokens: u64,
    /// Work given to it lately, in tokens, half as much after fifteen minutes.
    #[serde(default)]
    pub recent_work: f64,
    /// Requests waiting in the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    /// Used share of its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_usage: Option<f64>,
    /// Prompt tokens a second.
    pub prefill_rate: f64,
    /// Prompt tokens a second from slower tiers.
    pub fetch_rate: f64,
    /// Its part in a pool that splits requests.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub role: Role,
    /// Tokens of KV per second that a decode endpoint fetches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_rate: Option<f64>,
    /// Time to first token seen lately, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// Its weight.
    pub weight: u32,
    /// Blocks its cache has room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_blocks: Option<u64>,
    /// Blocks it is known to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_blocks: Option<u64>,
    /// Used share of its `LMCache` server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lmcache_occupancy: Option<f64>,
    /// Seconds until it would answer this request, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_ttft_s: Option<f64>,
    /// Its score, in the policy's own unit; lower is better. Only where candidates were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// Tokens by the fastest tier that holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverlapRecord {
    /// Accelerator memory.
    pub device: u32,
    /// Host memory.
    #[serde(skip_serializing_if = "super::is_default")]
    pub host: u32,
    /// Local storage.
    #[serde(skip_serializing_if = "super::is_default")]
    pub disk: u32,
    /// Elsewhere.
    #[serde(skip_serializing_if = "super::is_default")]
    pub remote: u32,
}

impl OverlapRecord {
    /// In all tiers.
    #[must_use]
    pub fn resident(&self) -> u64 {
        [self.device, self.host, self.disk, self.remote].into_iter().map(u64::from).sum()
    }
}

impl EndpointRecord {
    pub(super) fn new(
        name: &str,
        candidate: &Candidate,
        exclusion: Option<Exclusion>,
        expected_ttft_s: f64,
    ) -> Self {
        let Candidate { overlap, load, .. } = *candidate;
        Self {
            name: name.to_owned(),
            exclusion: exclusion.map(|exclusion| exclusion.as_str().to_owned()),
            overlap: OverlapRecord {
                device: overlap.in_tier(Tier::Device),
                host: overlap.in_tier(Tier::Host),
                disk: overlap.in_tier(Tier::Disk),
                remote: overlap.in_tier(Tier::Remote),
            },
            pending: candidate.pending,
            trust: candidate.trust.to_string(),
            in_flight: load.in_flight,
            queued_prefill_tokens: load.queued_prefill_tokens,
            recent_work: load.recent_work,
            waiting: load.waiting,
            kv_usage: load.kv_usage,
            prefill_rate: candidate.prefill_rate,
            fetch_rate: candidate.fetch_rate,
            role: candidate.role,
            transfer_rate: (candidate.role == Role::Decode).then_some(candidate.transfer_rate),
            ttft_ms: candidate.ttft_ms,
            weight: candidate.weight,
            capacity_blocks: candidate.capacity_blocks,
            resident_blocks: candidate.resident_blocks,
            lmcache_occupancy: candidate.lmcache_occupancy,
            expected_ttft_s: Some(expected_ttft_s).filter(|seconds| seconds.is_finite()),
            score: None,
        }
    }

    pub(super) fn candidate(&self) -> Candidate {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, self.overlap.device);
        overlap.add(Tier::Host, self.overlap.host);
        overlap.add(Tier::Disk, self.overlap.disk);
        overlap.add(Tier::Remote, self.overlap.remote);
        Candidate {
            id: EndpointId::of(&self.name),
            overlap,
            pending: self.pending,
            trust: trust_of(&self.trust),
            load: Load {
                in_flight: self.in_flight,
                queued_prefill_tokens: self.queued_prefill_tokens,
                recent_work: self.recent_work,
                waiting: self.waiting,
                kv_usage: self.kv_usage,
            },
            prefill_rate: self.prefill_rate,
            fetch_rate: self.fetch_rate,
            role: self.role,
            transfer_rate: self.transfer_rate.unwrap_or(DEFAULT_TRANSFER_RATE),
            ttft_ms: self.ttft_ms,
            weight: self.weight,
            capacity_blocks: self.capacity_blocks,
            resident_blocks: self.resident_blocks,
            lmcache_occupancy: self.lmcache_occupancy,
        }
    }
}

/// The state a text names. Policies look at no reasons: any one stands for all of a state.
fn trust_of(text: &str) -> Trust {
    match text.split('(').next() {
        Some("exact") => Trust::Exact,
        Some("catching_up") => Trust::CatchingUp,
        Some("partial") => Trust::Partial(PartialReason::JoinedLate),
        Some("suspect") => Trust::Suspect(SuspectReason::LifeInDoubt),
        _ => Trust::Absent(AbsentReason::NoStream),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_the_same_after_its_text() {
        for trust in [
            Trust::Exact,
            Trust::CatchingUp,
            Trust::Partial(PartialReason::JoinedLate),
            Trust::Suspect(SuspectReason::LifeInDoubt),
            Trust::Absent(AbsentReason::NoStream),
        ] {
            assert_eq!(trust_of(&trust.to_string()), trust);
        }
    }
}
