//! When an incomplete picture has become complete: the engine has stored as many blocks, since the
//! picture began, as its cache holds. Whatever was there before has made room for them.

use kvasir_inventory::Tier;
use kvasir_kv_events::{Event, Update};

/// Counts what an engine stores.
#[derive(Debug, Default)]
pub(crate) struct Refill {
    stored: u64,
}

impl Refill {
    pub(crate) fn note(&mut self, update: &Update) {
        match update {
            Update::Forget { .. } => self.stored = 0,
            Update::Trust { .. } => {}
            Update::Batch { batch, .. } => {
                for event in &batch.events {
                    if let Event::Stored(stored) = event
                        && stored.medium.tier() == Some(Tier::Device)
                    {
                        self.stored += stored.block_hashes.len() as u64;
                    }
                }
            }
        }
    }

    /// Whether a cache of so many blocks has been filled anew; never for one of unknown size.
    pub(crate) fn is_full(&self, blocks: Option<u64>) -> bool {
        blocks.is_some_and(|blocks| blocks > 0 && self.stored >= blocks)
    }
}

#[cfg(test)]
mod tests {
    use kvasir_inventory::{PartialReason, Trust};
    use kvasir_kv_events::{Why, decode};
    use kvasir_testkit::publisher::payload::{Form, batch, removed, stored};

    use super::*;

    fn stores(hashes: &[u64], medium: &str) -> Update {
        let tokens = vec![1; hashes.len() * 2];
        let events = [stored(hashes, None, &tokens).field("medium", medium), removed(&[1])];
        let payload = batch(Form::Map, 0.0, &events);
        let batch = decode(&payload).unwrap();
        Update::Batch { seq: 0, replayed: false, batch, payload: payload.into() }
    }

    #[test]
    fn as_many_stores_as_blocks_fill_a_cache() {
        let mut refill = Refill::default();
        refill.note(&stores(&[1, 2], "GPU"));
        refill.note(&stores(&[3, 4, 5], "CPU"));
        assert!(!refill.is_full(Some(3)) && !refill.is_full(None) && !refill.is_full(Some(0)));
        refill.note(&stores(&[6], "GPU"));
        assert!(refill.is_full(Some(3)) && !refill.is_full(Some(4)));
        let trust = Trust::Partial(PartialReason::LostBatch);
        refill.note(&Update::Trust { trust, why: Why::Gap });
        assert!(refill.is_full(Some(3)));
        refill.note(&Update::Forget { trust, why: Why::Gap });
        assert!(!refill.is_full(Some(1)));
    }
}
