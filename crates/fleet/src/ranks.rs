//! The endpoints of one engine: one, or one for each data-parallel rank.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvasir_upstream::Origin;
use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::identity::BlockIdentity;
use crate::pool::Shared;
use crate::rank_stream::RankStream;
use crate::spec::{AdminState, RankAddressing};
use crate::stream_applier::off_the_scheduler;

/// More ranks than this are not followed: their engine earns no credit.
const MAX_RANKS: usize = 1024;

/// An engine and its endpoints, which may become more or fewer as it says how many ranks it has.
#[derive(Debug)]
pub(crate) struct Ranks {
    engine: Arc<Engine>,
    addressing: RankAddressing,
    configured: Mutex<Configured>,
    shared: Shared,
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
}

/// What the configuration says of an engine's ranks, and may say otherwise after a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configured {
    /// How many there are.
    pub(crate) ranks: Option<u32>,
    /// Whether requests may go there.
    pub(crate) state: AdminState,
}

impl Ranks {
    /// `None` when the inventory has no place left.
    pub(crate) fn new(
        origin: Origin,
        addressing: RankAddressing,
        configured: Configured,
        identity: BlockIdentity,
        shared: Shared,
    ) -> Option<Self> {
        let engine = Arc::new(Engine::new(origin, identity, &shared));
        let (configured, endpoints) = (Mutex::new(configured), Mutex::default());
        let ranks = Self { engine, addressing, configured, shared, endpoints };
        ranks.learn(&[]);
        let complete = ranks.endpoints().iter().any(|e| !e.streams().is_empty());
        complete.then_some(ranks)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn addressing(&self) -> RankAddressing {
        self.addressing
    }

    /// The configuration says something else. A state that is said anew holds for all its endpoints;
    /// one that is said as before leaves them as they were set since.
    pub(crate) fn configure(&self, configured: Configured) {
        let before = std::mem::replace(&mut *self.configured.lock(), configured);
        if before.state != configured.state {
            self.endpoints().iter().for_each(|endpoint| endpoint.configure_state(configured.state));
        }
        if before.ranks != configured.ranks {
            let told = self.engine.card().map(|card| card.ranks.clone());
            self.learn(&told.unwrap_or_default());
        }
    }

    /// In the order of ranks.
    pub(crate) fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.endpoints.lock().clone()
    }

    /// Every rank's stream, and the endpoint it belongs to.
    pub(crate) fn streams(&self) -> Vec<(Arc<Endpoint>, Arc<RankStream>)> {
        let of = |endpoint: Arc<Endpoint>| {
            endpoint.streams().into_iter().map(move |stream| (Arc::clone(&endpoint), stream))
        };
        self.endpoints().into_iter().flat_map(of).collect()
    }

    /// Takes in which ranks the engine says it has (nothing where it does not say); whether there
    /// are other endpoints now.
    pub(crate) fn learn(&self, told: &[u32]) -> bool {
        let configured = *self.configured.lock();
        let wanted = wanted(self.addressing, configured.ranks, told);
        let mut endpoints = self.endpoints.lock();
        match self.addressing {
            RankAddressing::Header => self.one_each(&mut endpoints, &wanted, configured.state),
            RankAddressing::None | RankAddressing::Url { .. } => {
                self.one_for_all(&mut endpoints, &wanted, configured.state)
            }
        }
    }

    /// An endpoint for each rank; those that stay keep their load, rates and blocks.
    fn one_each(
        &self,
        endpoints: &mut Vec<Arc<Endpoint>>,
        wanted: &[u32],
        state: AdminState,
    ) -> bool {
        if endpoints.iter().map(|e| e.rank().unwrap_or(0)).eq(wanted.iter().copied()) {
            return false;
        }
        let mut list = Vec::with_capacity(wanted.len());
        for (offset, rank) in (0..).zip(wanted.iter().copied()) {
            let known = endpoints.iter().find(|e| e.rank() == Some(rank));
            if let Some(endpoint) = known {
                self.move_to(endpoint, rank, offset);
            }
            match known.cloned().or_else(|| {
                let streams = vec![Arc::new(self.stream(rank, offset)?)];
                let (engine, shared) = (Arc::clone(&self.engine), &self.shared);
                Some(Arc::new(Endpoint::new(engine, Some(rank), true, streams, state, shared)))
            }) {
                Some(endpoint) => list.push(endpoint),
                None => {
                    let endpoint = self.engine.url();
                    tracing::error!(endpoint, rank, "no room for this rank; it is left out");
                }
            }
        }
        tracing::info!(endpoint = self.engine.url(), ranks = ?wanted, "an endpoint for each rank");
        let stays = |known: &Arc<Endpoint>| list.iter().any(|now| Arc::ptr_eq(now, known));
        let gone: Vec<Arc<Endpoint>> = endpoints.iter().filter(|e| !stays(e)).cloned().collect();
        *endpoints = list;
        self.retire(gone);
        self.recall(endpoints);
        true
    }

    /// Its ports may be others, where ranks before it came or went: those of its stream are
    /// another's now.
    fn move_to(&self, endpoint: &Endpoint, rank: u32, offset: u32) {
        if endpoint.streams().iter().all(|stream| stream.offset() == offset) {
            return;
        }
        let stream = self.stream(rank, offset).map(Arc::new);
        let incomplete = stream.is_none();
        endpoint.set_streams(stream.into_iter().collect(), incomplete);
    }

    /// One endpoint with a stream for each rank.
    fn one_for_all(
        &self,
        endpoints: &mut Vec<Arc<Endpoint>>,
        wanted: &[u32],
        state: AdminState,
    ) -> bool {
        let known = endpoints.first().map(|endpoint| endpoint.streams()).unwrap_or_default();
        if !known.is_empty() && known.iter().map(|s| s.rank()).eq(wanted.iter().copied()) {
            return false;
        }
        let by_url = matches!(self.addressing, RankAddressing::Url { .. });
        let list: Vec<Arc<RankStream>> = (0..)
            .zip(wanted.iter().copied())
            .take(MAX_RANKS)
            .map_while(|(place, rank)| {
                let offset = if by_url { rank } else { place };
                let is_it = |s: &&Arc<RankStream>| s.rank() == rank && s.offset() == offset;
                let stays = known.iter().find(is_it);
                stays.cloned().or_else(|| self.stream(rank, offset).map(Arc::new))
            })
            .collect();
        let incomplete = list.len() < wanted.len();
        if incomplete {
            let (followed, ranks) = (list.len(), wanted.len());
            let endpoint = self.engine.url();
            tracing::error!(endpoint, ranks, followed, "too many ranks; no credit");
        } else if wanted.len() > 1 {
            tracing::info!(endpoint = self.engine.url(), ranks = ?wanted, "a stream for each rank");
        }
        match endpoints.first() {
            Some(endpoint) => {
                endpoint.set_streams(list, incomplete);
                false
            }
            None => {
                let rank = if by_url { wanted.first().copied() } else { None };
                let (engine, shared) = (Arc::clone(&self.engine), &self.shared);
                let endpoint = Endpoint::new(engine, rank, false, Vec::new(), state, shared);
                endpoint.set_streams(list, incomplete);
                endpoints.push(Arc::new(endpoint));
                true
            }
        }
    }

    fn stream(&self, rank: u32, offset: u32) -> Option<RankStream> {
        let (url, changes) = (self.engine.url(), self.engine.trust_changes());
        RankStream::new(url, rank, offset, changes, &self.shared.inventory)
    }

    /// These are its endpoints no more. What they have in hand counts on.
    fn retire(&self, endpoints: Vec<Arc<Endpoint>>) {
        off_the_scheduler(true, || {
            endpoints.iter().for_each(|endpoint| endpoint.set_streams(Vec::new(), true));
        });
        self.shared.retired.add(endpoints);
    }

    /// Looks what is in hand at endpoints that the engine had.
    pub(crate) fn recall(&self, now: &[Arc<Endpoint>]) {
        self.engine.set_former(self.shared.retired.former(self.engine.authority(), now));
    }
}

/// The ranks to follow, in order; at least one.
fn wanted(addressing: RankAddressing, configured: Option<u32>, told: &[u32]) -> Vec<u32> {
    match addressing {
        RankAddressing::Url { rank } => return vec![rank],
        // Which ranks are addressed, the configuration may say; which there are, both: a rank that
        // is not followed may hold less than the others.
        RankAddressing::Header => {
            if let Some(count) = configured {
                return (0..count.max(1)).collect();
            }
        }
        RankAddressing::None => {}
    }
    let mut ranks: BTreeSet<u32> = told.iter().copied().collect();
    if let Some(count) = configured.filter(|count| *count as usize > ranks.len()) {
        ranks.extend(0..count);
    }
    if ranks.is_empty() {
        ranks.insert(0);
    }
    ranks.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 3 alone, and then all four: what came on the first ports is rank 0's from then on.
    #[test]
    fn a_stream_is_of_one_rank_at_one_offset() {
        let space = kvasir_kv_hash::KeySpace::fixed();
        let inventory = Arc::new(kvasir_inventory::Inventory::new(space, Default::default()));
        for addressing in [RankAddressing::None, RankAddressing::Header] {
            let ranks = Ranks::new(
                Origin::at("127.0.0.2:1".parse().unwrap(), false).unwrap(),
                addressing,
                Configured::default(),
                BlockIdentity::Tokens,
                Shared::new(Arc::clone(&inventory)),
            )
            .unwrap();
            let places = || -> Vec<(u32, u32)> {
                ranks.streams().iter().map(|(_, s)| (s.rank(), s.offset())).collect()
            };
            let stream_of = |rank| {
                ranks.streams().into_iter().map(|(_, s)| s).find(|s| s.rank() == rank).unwrap()
            };
            ranks.learn(&[3]);
            assert_eq!(places(), [(3, 0)]);
            let alone = stream_of(3);
            ranks.learn(&[0, 1, 2, 3]);
            assert_eq!(places(), [(0, 0), (1, 1), (2, 2), (3, 3)], "{addressing:?}");
            assert!(!Arc::ptr_eq(&alone, &stream_of(3)), "its blocks are another's");
            let first = stream_of(0);
            ranks.learn(&[0, 3]);
            assert_eq!(places(), [(0, 0), (3, 1)], "{addressing:?}");
            assert!(Arc::ptr_eq(&first, &stream_of(0)), "it stays where it was");
        }
    }

    #[test]
    fn which_ranks_are_followed() {
        let none = RankAddressing::None;
        assert_eq!(wanted(none, None, &[]), [0]);
        assert_eq!(wanted(none, None, &[3]), [3], "one rank of a larger deployment");
        assert_eq!(wanted(none, Some(4), &[]), [0, 1, 2, 3]);
        assert_eq!(wanted(none, Some(2), &[0, 1, 2]), [0, 1, 2], "none may be left out");
        assert_eq!(wanted(RankAddressing::Header, Some(2), &[0, 1, 2]), [0, 1]);
        assert_eq!(wanted(RankAddressing::Header, None, &[1, 0]), [0, 1]);
        assert_eq!(wanted(RankAddressing::Url { rank: 5 }, Some(9), &[0, 1]), [5]);
    }
}
