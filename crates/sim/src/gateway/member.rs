//! One engine, as one gateway sees it.

use std::time::Duration;

use kvasir_balance::{
    Candidate, EndpointId, Load, PrefillRate, RecentWork, Role, expected_rate, fetch_rate,
    foreign_waiting,
};
use kvasir_fleet::{Advice, EngineCard};

use super::Following;
use crate::queue::Time;

/// An engine's own account of its load, as last read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Signals {
    pub(crate) running: Option<f64>,
    pub(crate) waiting: Option<f64>,
    pub(crate) kv_usage: Option<f64>,
    /// Requests of this gateway that were there when it was read.
    pub(crate) own_in_flight: u32,
}

/// What peers' policies look at besides [`kvasir_balance::FleetView`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra {
    /// Requests waiting at the engine, as last read.
    pub(crate) waiting: f64,
    /// Used part of its cache, as last read.
    pub(crate) kv_usage: f64,
    /// Prompt tokens of the gateway's own requests in flight there.
    pub(crate) prompt_tokens: u64,
}

/// One engine, as one gateway sees it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) id: EndpointId,
    pub(crate) following: Following,
    /// Its part in requests that are split.
    role: Role,
    /// Its capacity weight, as configured.
    weight: u32,
    advice: Advice,
    pub(super) card: EngineCard,
    pub(super) in_flight: u32,
    pub(super) queued_prefill_tokens: u64,
    /// Prompt tokens of the requests in flight.
    pub(super) prompt_tokens: u64,
    pub(super) rate: PrefillRate,
    pub(super) recent: RecentWork,
    /// How fast it fetches prompts, and decode legs sent there whose first token has not come.
    pub(super) transfers: PrefillRate,
    pub(super) fetching: u32,
    pub(super) signals: Signals,
    pub(super) reachable: bool,
}

/// What a gateway is told of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// Blocks of its cache.
    pub(crate) blocks: u64,
    /// Its capacity weight.
    pub(crate) weight: u32,
    /// What is advised of it.
    pub(crate) advice: Advice,
    /// Its part in requests that are split.
    pub(crate) role: Role,
}

/// What a choice is told besides of every engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) typical_prompt: u64,
    pub(super) median_rate: f64,
    /// Tokens a second that decode engines are expected to fetch.
    pub(super) transfer_rate: f64,
    /// Whether caches are counted.
    pub(super) blocks: bool,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, f64::from(u32::MAX)) as u32
}

impl Member {
    /// Nothing is known of it yet.
    pub(super) fn new(id: EndpointId, following: Following, block_size: u32, seat: &Seat) -> Self {
        Self {
            id,
            following,
            role: seat.role,
            weight: seat.weight,
            advice: seat.advice,
            card: EngineCard {
                blocks: Some(seat.blocks),
                block_size: Some(block_size),
                ..EngineCard::default()
            },
            in_flight: 0,
            queued_prefill_tokens: 0,
            prompt_tokens: 0,
            rate: PrefillRate::default(),
            recent: RecentWork::default(),
            transfers: PrefillRate::default(),
            fetching: 0,
            signals: Signals::default(),
            reachable: true,
        }
    }

    /// Its rate and capacity weight, if it was timed.
    pub(super) fn timed(&self) -> Option<(f64, u32)> {
        Some((self.rate.get()?, self.weight))
    }

    pub(super) fn candidate(
        &self,
        overlap: kvasir_inventory::Overlap,
        common: Common,
        now: Time,
    ) -> Candidate {
        let Common { typical_prompt, median_rate, transfer_rate, blocks } = common;
        let age = Duration::from_nanos(now);
        let prefill_rate = self.rate.against(expected_rate(median_rate, self.weight), age);
        let Signals { running, waiting, own_in_flight, .. } = self.signals;
        let foreign = u64::from(foreign_waiting(running, waiting, own_in_flight));
        Candidate {
            id: self.id,
            overlap,
            trust: self.following.picture.trust(),
            load: Load {
                in_flight: self.in_flight,
                queued_prefill_tokens: self
                    .queued_prefill_tokens
                    .saturating_add(foreign.saturating_mul(typical_prompt)),
                recent_work: 0.0,
                waiting: waiting.map(whole),
                kv_usage: self.signals.kv_usage,
            },
            weight: self.advice.weigh(self.weight),
            prefill_rate,
            fetch_rate: fetch_rate(&PrefillRate::default(), prefill_rate, Duration::ZERO),
            role: self.role,
            transfer_rate: self.transfers.against(transfer_rate, age),
            capacity_blocks: self.card.blocks.filter(|_| blocks),
            resident_blocks: blocks.then(|| self.resident_blocks()),
            ..Candidate::default()
        }
    }

    fn resident_blocks(&self) -> u64 {
        self.following.picture.blocks().iter().sum::<usize>() as u64
    }

    pub(super) fn extra(&self) -> Extra {
        Extra {
            waiting: self.signals.waiting.unwrap_or(0.0),
            kv_usage: self.signals.kv_usage.unwrap_or(0.0),
            prompt_tokens: self.prompt_tokens,
        }
    }
}
