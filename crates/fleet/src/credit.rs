//! What is believed of an endpoint's event stream, and whether its blocks may be credited.

use kvasir_inventory::{AbsentReason, SuspectReason, Tier, Trust};
use kvasir_kv_events::{BlockRemoved, BlockStored, Event, Update};

use crate::parity::Stamp;

/// What is believed of the event stream.
#[derive(Debug)]
pub(crate) struct Credit {
    pub(crate) trust: Trust,
    /// While blocks are being forgotten or a history is replayed nobody is credited with them.
    pub(crate) withheld: bool,
    /// Counts the times credit was withheld: what was looked up before is worth nothing after.
    pub(crate) epoch: u64,
    pub(crate) extras: Extras,
    /// A request whose blocks differ by more than tokens (salt, adapter, image) was sent there.
    /// Never taken back: such blocks may come again with a replayed history.
    pub(crate) carried_extras: bool,
    /// Blocks are told apart all the same: by the engine's hashes.
    pub(crate) told_apart: bool,
    pub(crate) stamp: Stamp,
    /// Blocks that the engine removed from its device's first cache group, ever.
    pub(crate) removed: u64,
}

/// Whether an endpoint's blocks may be credited at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Creditable {
    pub(crate) trust: Trust,
    pub(crate) credits: bool,
    /// Whether they might be, if the engine had not been seen to hit less than was predicted.
    pub(crate) predicts: bool,
    /// Whether such a prediction may be held against what the engine hits.
    pub(crate) judged: bool,
    pub(crate) epoch: u64,
    pub(crate) stamp: Stamp,
    /// Blocks that were removed, ever.
    pub(crate) removed: u64,
}

/// Whether an engine publishes what its blocks were hashed with besides tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extras {
    /// It does, or has stored nothing yet.
    Published,
    /// It does not: salted, adapter and image blocks look plain.
    Unpublished,
}

impl Extras {
    /// What an event says of that. One without tokens says nothing: its handles stand for blocks
    /// that other events describe.
    pub(crate) fn of(stored: &BlockStored) -> Option<Self> {
        if stored.token_ids.is_empty() {
            return None;
        }
        Some(if stored.extra_keys.is_some() { Self::Published } else { Self::Unpublished })
    }
}

// === impl Credit ===

impl Credit {
    /// Of a stream that has said nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            trust: Trust::Absent(AbsentReason::Connecting),
            withheld: false,
            epoch: 0,
            extras: Extras::Published,
            carried_extras: false,
            told_apart: false,
            stamp: Stamp::default(),
            removed: 0,
        }
    }

    /// An update of the stream is about to be applied: none of its blocks may be credited that could
    /// be somebody else's, and none of those it forgets.
    pub(crate) fn before(&mut self, update: &Update) {
        match update {
            Update::Forget { .. } => {
                self.told_apart = false;
                self.stamp.life += 1;
                self.emptied();
                self.withhold();
            }
            Update::Trust { .. } => {}
            Update::Batch { batch, .. } => {
                for event in &batch.events {
                    match event {
                        Event::Stored(stored) => {
                            self.extras = Extras::of(stored).unwrap_or(self.extras);
                        }
                        Event::Cleared => self.emptied(),
                        Event::Removed(removed) => self.removed += evicted(removed),
                    }
                }
            }
        }
    }

    /// The update was applied. A history that begins with nothing is sound only once it has been
    /// replayed to its end.
    pub(crate) fn after(&mut self, update: &Update) {
        if let Update::Forget { trust, .. } | Update::Trust { trust, .. } = update
            && *trust != Trust::CatchingUp
        {
            self.withheld = false;
        }
        // What was looked up while the blocks went away is of neither picture.
        if clears(update) {
            self.emptied();
        }
    }

    /// All blocks go away.
    pub(crate) fn emptied(&mut self) {
        self.stamp.picture += 1;
    }

    /// Takes in the stream's trust; what it was.
    pub(crate) fn set_trust(&mut self, trust: Trust) -> Trust {
        if !is_sound(trust) {
            self.stamp.breaks += 1;
        }
        std::mem::replace(&mut self.trust, trust)
    }

    /// Credits nobody until a sound trust is told.
    pub(crate) fn withhold(&mut self) {
        self.withheld = true;
        self.epoch += 1;
        self.stamp.breaks += 1;
    }

    /// Whether blocks may be credited now.
    pub(crate) fn now(&self) -> Creditable {
        let trust = self.effective();
        let credits = trust.credits() && !self.withheld;
        Creditable {
            trust,
            credits,
            predicts: credits,
            judged: credits && is_sound(trust),
            epoch: self.epoch,
            stamp: self.stamp,
            removed: self.removed,
        }
    }

    /// The trust, less what requests have shown since.
    pub(crate) fn effective(&self) -> Trust {
        if !self.trust.credits() {
            return self.trust;
        }
        if self.carried_extras && self.extras == Extras::Unpublished && !self.told_apart {
            return Trust::Suspect(SuspectReason::ExtraKeysUnpublished);
        }
        self.trust
    }
}

/// Whether a stream of such trust has told everything it claims, and nothing that is not so.
fn is_sound(trust: Trust) -> bool {
    matches!(trust, Trust::Exact | Trust::Partial(_))
}

/// Device blocks of the first cache group that are gone: one for each place in a prompt.
fn evicted(removed: &BlockRemoved) -> u64 {
    let here = removed.medium.tier() == Some(Tier::Device) && removed.group.unwrap_or(0) == 0;
    if here { removed.block_hashes.len() as u64 } else { 0 }
}

fn clears(update: &Update) -> bool {
    match update {
        Update::Batch { batch, .. } => batch.events.iter().any(|e| matches!(e, Event::Cleared)),
        Update::Forget { .. } | Update::Trust { .. } => false,
    }
}
