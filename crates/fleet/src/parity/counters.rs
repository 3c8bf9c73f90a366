//! The second oracle: an engine's own counters of prompt tokens looked up in its cache and of those
//! hit, which need no flag.
//!
//! They count everybody's requests. They are compared over *segments*: from one metrics page to a
//! later one, at both of which none of our requests was being prefilled, so that each is in it with
//! all its tokens or with none. A segment counts only if the engine looked up exactly as many
//! tokens as our prompts have (a token a request may be missing or over): then the hits are ours.

use super::{Prediction, Stamp};

/// Pages on which our tokens may still be missing: engines count a step a little after it.
const PATIENCE: u32 = 3;

/// Totals of prompt tokens since the engine's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counters {
    /// Looked up in the cache (`vllm:prefix_cache_queries_total`, `sglang:prompt_tokens_total`).
    pub(crate) queries: f64,
    /// Found there (`vllm:prefix_cache_hits_total`, `sglang:cached_tokens_total`).
    pub(crate) hits: f64,
}

/// What requests of one segment have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) requests: u64,
    pub(crate) prompt: u64,
    pub(crate) predicted: u64,
    /// A block for each request.
    pub(crate) tolerance: u64,
    pub(crate) stamp: Option<Stamp>,
    /// Blocks that the engine removed while they waited.
    pub(crate) evicted: u64,
}

/// How a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// All of it was ours: what was predicted, and the tokens hit.
    Ours(Sum, u64),
    /// Others sent requests too.
    Foreign,
    /// It cannot be compared: a request failed or its prediction is not known exactly, the counters
    /// began anew, blocks were forgotten, or some of our tokens never appeared.
    Void,
}

/// The segment under way at one endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Requests sent and not prefilled yet.
    open: u32,
    /// Grows with every request sent or prefilled.
    moves: u64,
    sum: Sum,
    void: bool,
    base: Option<Counters>,
    waited: u32,
}

impl Ledger {
    /// A request was sent.
    pub(crate) fn sent(&mut self) {
        self.open += 1;
        self.moves += 1;
    }

    /// A request is counted at the engine by now, `evicted` blocks having been removed since it was
    /// chosen. Without a prediction nobody knows as what.
    pub(crate) fn settled(&mut self, prediction: Option<Prediction>, evicted: u64) {
        self.open = self.open.saturating_sub(1);
        self.moves += 1;
        let sum = &mut self.sum;
        let Some(prediction) = prediction
            .filter(|known| known.on_device && sum.stamp.is_none_or(|stamp| stamp == known.stamp))
        else {
            self.void = true;
            return;
        };
        sum.requests += 1;
        sum.prompt += prediction.prompt;
        sum.predicted += u64::from(prediction.tokens);
        sum.tolerance += u64::from(prediction.block);
        sum.stamp = Some(prediction.stamp);
        sum.evicted = sum.evicted.saturating_add(evicted);
    }

    /// Changes between two readings where a request was sent or prefilled in between.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// A metrics page came; it was asked for at `moves`.
    pub(crate) fn page(
        &mut self,
        moves: u64,
        counters: Option<Counters>,
        stamp: Stamp,
    ) -> Option<Closed> {
        let Some(counters) = counters else {
            self.void = true;
            self.base = None;
            return None;
        };
        if self.open > 0 || self.moves != moves {
            return None;
        }
        let Some(base) = self.base else {
            self.restart(counters);
            return None;
        };
        let sum = self.sum;
        let reset = counters.queries < base.queries || counters.hits < base.hits;
        let moved = sum.stamp.is_some_and(|known| known != stamp);
        if self.void || reset || moved {
            self.restart(counters);
            return Some(Closed::Void);
        }
        let looked_up = whole(counters.queries - base.queries);
        if looked_up > sum.prompt + sum.requests {
            self.restart(counters);
            return Some(Closed::Foreign);
        }
        if looked_up + sum.requests < sum.prompt {
            self.waited += 1;
            if self.waited <= PATIENCE {
                return None;
            }
            self.restart(counters);
            return Some(Closed::Void);
        }
        if sum.requests == 0 {
            return None;
        }
        self.restart(counters);
        Some(Closed::Ours(sum, whole(counters.hits - base.hits)))
    }

    fn restart(&mut self, counters: Counters) {
        self.base = Some(counters);
        self.sum = Sum::default();
        self.void = false;
        self.waited = 0;
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: not below 0")]
fn whole(delta: f64) -> u64 {
    delta.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { life: 1, picture: 2, breaks: 3 };

    fn at(queries: f64, hits: f64) -> Option<Counters> {
        Some(Counters { queries, hits })
    }

    fn prediction(prompt: u64, tokens: u32) -> Option<Prediction> {
        let (held, stamp) = (tokens, STAMP);
        Some(Prediction { tokens, held, block: 16, prompt, on_device: true, stamp, removed: 0 })
    }

    fn ask(ledger: &mut Ledger, prompt: u64, tokens: u32) {
        ledger.sent();
        ledger.settled(prediction(prompt, tokens), u64::from(tokens) / 32);
    }

    fn page(ledger: &mut Ledger, counters: Option<Counters>) -> Option<Closed> {
        ledger.page(ledger.moves(), counters, STAMP)
    }

    #[test]
    fn a_segment_is_ours_if_the_engine_looked_up_our_tokens_and_no_others() {
        let mut ledger = Ledger::default();
        assert_eq!(page(&mut ledger, at(1000.0, 500.0)), None);
        assert_eq!(page(&mut ledger, at(1000.0, 500.0)), None, "nothing was asked");
        ask(&mut ledger, 100, 64);
        ask(&mut ledger, 50, 32);
        let sum = Sum {
            requests: 2,
            prompt: 150,
            predicted: 96,
            tolerance: 32,
            stamp: Some(STAMP),
            evicted: 3,
        };
        assert_eq!(page(&mut ledger, at(1150.0, 580.0)), Some(Closed::Ours(sum, 80)));
        ask(&mut ledger, 100, 64);
        assert_eq!(page(&mut ledger, at(1400.0, 580.0)), Some(Closed::Foreign));
        assert_eq!(page(&mut ledger, at(1500.0, 600.0)), Some(Closed::Foreign), "alone");
    }

    #[test]
    fn it_lasts_while_a_request_is_prefilled_or_begins_meanwhile() {
        let mut ledger = Ledger::default();
        page(&mut ledger, at(0.0, 0.0));
        ledger.sent();
        assert_eq!(page(&mut ledger, at(100.0, 0.0)), None);
        let asked = ledger.moves();
        ledger.settled(prediction(100, 0), 0);
        assert_eq!(ledger.page(asked, at(100.0, 0.0), STAMP), None, "the page may be older");
        assert!(matches!(page(&mut ledger, at(100.0, 0.0)), Some(Closed::Ours(_, 0))));
    }

    #[test]
    fn tokens_that_are_counted_late_are_waited_for_a_while() {
        let mut ledger = Ledger::default();
        page(&mut ledger, at(0.0, 0.0));
        ask(&mut ledger, 100, 64);
        assert_eq!(page(&mut ledger, at(0.0, 0.0)), None);
        assert!(matches!(page(&mut ledger, at(100.0, 64.0)), Some(Closed::Ours(_, 64))));
        ask(&mut ledger, 100, 64);
        for _ in 0..PATIENCE {
            assert_eq!(page(&mut ledger, at(100.0, 64.0)), None);
        }
        assert_eq!(page(&mut ledger, at(100.0, 64.0)), Some(Closed::Void));
    }

    #[test]
    fn what_cannot_be_compared_is_void() {
        let begun = || {
            let mut ledger = Ledger::default();
            page(&mut ledger, at(1000.0, 500.0));
            ask(&mut ledger, 100, 64);
            ledger
        };
        let mut failed = begun();
        failed.sent();
        failed.settled(None, 0);
        assert_eq!(page(&mut failed, at(1100.0, 500.0)), Some(Closed::Void));
        assert_eq!(page(&mut begun(), at(100.0, 0.0)), Some(Closed::Void), "began anew");
        let moves = begun().moves();
        let cleared = Stamp { picture: 9, ..STAMP };
        assert_eq!(begun().page(moves, at(1100.0, 500.0), cleared), Some(Closed::Void));
        let mut unread = begun();
        assert_eq!(page(&mut unread, None), None);
        assert_eq!(page(&mut unread, at(1100.0, 500.0)), None);
        let mut tiers = begun();
        tiers.sent();
        tiers.settled(prediction(100, 64).map(|p| Prediction { on_device: false, ..p }), 0);
        assert_eq!(page(&mut tiers, at(1200.0, 500.0)), Some(Closed::Void));
    }
}
