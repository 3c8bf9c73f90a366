//! What an endpoint's event streams say of it: one stream, or one of each of its ranks, of which the
//! least counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvasir_inventory::{AbsentReason, Overlap, Overlaps, SuspectReason, Tier, Trust};

use super::Endpoint;
use crate::card::EngineCard;
use crate::credit::Creditable;
use crate::hash_contract::HashContract;
use crate::parity::Stamp;
use crate::rank_stream::RankStream;

#[derive(Debug, Default)]
pub(super) struct Streams {
    list: Vec<Arc<RankStream>>,
    /// Not all ranks could be given a stream.
    incomplete: bool,
    /// Grows whenever the list changes, by at least the epochs of those that left.
    retired: u64,
    /// Grows likewise.
    gone: Stamp,
    /// Blocks that the ranks which left had removed, ever.
    removed: u64,
}

impl Streams {
    /// These, and none was there before.
    pub(super) fn of(list: Vec<Arc<RankStream>>) -> Self {
        Self { list, ..Self::default() }
    }
}

impl Endpoint {
    /// What is known of the contracts behind the hashes in its events, one for each of its streams.
    #[must_use]
    pub fn hash_contracts(&self) -> Vec<Arc<HashContract>> {
        self.streams.read().list.iter().map(|stream| stream.hash_contract()).collect()
    }

    /// How far its events can be believed: as far as those of its least believable rank.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.creditable().trust
    }

    /// A request whose blocks differ by more than tokens (salt, adapter, image) was sent there.
    /// Where the engine does not publish such differences, its blocks can no longer be told apart.
    pub fn carried_extras(&self) {
        self.carried_extras.store(true, Ordering::Relaxed);
    }

    /// Whether what is being computed there can be counted on by the next request: the engine caches
    /// prefixes, as its events show (where they are `credited`) or its metrics say, and has one cache.
    /// Which of several ranks gets a request is the engine's choice, and the others do not have it.
    pub(crate) fn shares_pending(&self, card: Option<&EngineCard>, credited: bool) -> bool {
        let told = card.and_then(|card| card.prefix_caching);
        let caches = told != Some(false) && (credited || told == Some(true));
        let streams = self.streams.read();
        caches && !streams.incomplete && streams.list.len() == 1
    }

    /// Blocks its events have told of; `None` where they tell nothing.
    pub(crate) fn resident_blocks(&self) -> Option<u64> {
        if !self.creditable().credits {
            return None;
        }
        let of_one = |stream: &Arc<RankStream>| stream.residency().blocks.iter().sum::<usize>();
        Some(self.streams.read().list.iter().map(of_one).sum::<usize>() as u64)
    }

    /// Its streams: one, or one a rank.
    pub(crate) fn streams(&self) -> Vec<Arc<RankStream>> {
        self.streams.read().list.clone()
    }

    /// Follows these streams from now on. `incomplete` says that there are ranks without one.
    pub(crate) fn set_streams(&self, list: Vec<Arc<RankStream>>, incomplete: bool) {
        let mut streams = self.streams.write();
        let gone = streams.list.iter().map(|stream| stream.creditable().epoch).sum::<u64>();
        let retired = streams.retired + gone + 1;
        let another = Stamp { life: 1, picture: 1, breaks: 1 };
        let gone = streams
            .list
            .iter()
            .fold(streams.gone.and(another), |gone, stream| gone.and(stream.creditable().stamp));
        let of_gone = streams.list.iter().map(|stream| stream.creditable().removed);
        let removed = streams.removed + of_gone.sum::<u64>();
        *streams = Streams { list, incomplete, retired, gone, removed };
    }

    /// Whether its blocks may be credited now: those of all ranks or none.
    pub(crate) fn creditable(&self) -> Creditable {
        let mut all = self.streams_creditable();
        if all.trust.credits() && self.parity.suspects(all.stamp) {
            all.trust = Trust::Suspect(SuspectReason::HitMismatch);
            all.credits = false;
        }
        all
    }

    /// [`creditable`](Self::creditable), as far as the event streams go.
    pub(super) fn streams_creditable(&self) -> Creditable {
        let streams = self.streams.read();
        if self.carried_extras.load(Ordering::Relaxed) {
            streams.list.iter().for_each(|stream| stream.carried_extras());
        }
        let nothing = Creditable {
            trust: Trust::Exact,
            credits: !streams.incomplete,
            predicts: !streams.incomplete,
            judged: !streams.incomplete,
            epoch: streams.retired,
            stamp: streams.gone,
            removed: streams.removed,
        };
        let mut all = streams.list.iter().fold(nothing, |all, stream| {
            let one = stream.creditable();
            Creditable {
                trust: least(all.trust, one.trust),
                credits: all.credits && one.credits,
                predicts: all.predicts && one.predicts,
                judged: all.judged && one.judged,
                epoch: all.epoch + one.epoch,
                stamp: all.stamp.and(one.stamp),
                removed: all.removed + one.removed,
            }
        });
        if streams.incomplete || streams.list.is_empty() {
            all.trust = Trust::Absent(AbsentReason::TooManyRanks);
            all.credits = false;
            all.predicts = false;
            all.judged = false;
        }
        all
    }

    /// What it holds of a prompt, whichever of its ranks gets it.
    pub(crate) fn held(&self, overlaps: &Overlaps) -> Overlap {
        let streams = self.streams.read();
        let mut held = streams.list.iter().map(|stream| overlaps.get(stream.slot()));
        let first = held.next().unwrap_or_default();
        held.fold(first, common)
    }
}

/// The less believable of two.
fn least(one: Trust, other: Trust) -> Trust {
    let order = |trust: Trust| match trust {
        Trust::Exact => 0,
        Trust::Partial(_) => 1,
        Trust::CatchingUp => 2,
        Trust::Suspect(_) => 3,
        Trust::Absent(_) => 4,
    };
    if order(other) > order(one) { other } else { one }
}

/// What both hold, each block in the slower of its tiers at worst.
fn common(one: Overlap, other: Overlap) -> Overlap {
    let mut common = Overlap::default();
    let (mut of_one, mut of_other) = (0, 0);
    for tier in Tier::ALL {
        of_one += one.in_tier(tier);
        of_other += other.in_tier(tier);
        common.add(tier, of_one.min(of_other) - common.resident());
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(device: u32, host: u32) -> Overlap {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, device);
        overlap.add(Tier::Host, host);
        overlap
    }

    #[test]
    fn of_two_ranks_the_least_counts_tier_by_tier() {
        assert_eq!(common(overlap(64, 0), overlap(32, 0)), overlap(32, 0));
        assert_eq!(common(overlap(64, 0), overlap(0, 48)), overlap(0, 48));
        assert_eq!(common(overlap(16, 64), overlap(32, 16)), overlap(16, 32));
        assert_eq!(common(overlap(16, 64), overlap(0, 0)), overlap(0, 0));
    }

    #[test]
    fn trust_is_that_of_the_least_believable() {
        let absent = Trust::Absent(AbsentReason::Disconnected);
        assert_eq!(least(Trust::Exact, absent), absent);
        assert_eq!(least(Trust::CatchingUp, Trust::Exact), Trust::CatchingUp);
        assert_eq!(least(absent, Trust::CatchingUp), absent);
    }
}
