//! Failures by pair of engines, and what follows from them. Pure; engines are known by their URLs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Failures without one that worked, from which on somebody is at fault.
pub(super) const FAILURES: u32 = 3;
/// With so many others an engine has to have failed to be at fault itself.
pub(super) const PEERS: usize = 2;
/// How long who is at fault is left out.
pub(super) const REST: Duration = Duration::from_secs(30);
/// How long nobody else tries who was left out, once somebody does.
pub(super) const TRIAL: Duration = Duration::from_secs(5);
/// When what did not fail again is forgotten.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(300);
/// Pairs, and engines, of which something is kept: the ones that failed last.
pub(super) const MOST: usize = 1024;

/// What is at fault where KV is not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The engine that computed it.
    Prefill,
    /// The engine that was to fetch it.
    Decode,
    /// What is between these two.
    Link,
}

impl Fault {
    /// The word used in metrics and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Link => "link",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By prefill engine and decode engine.
    pairs: BTreeMap<(String, String), Pair>,
    engines: BTreeMap<(Fault, String), Engine>,
}

/// One pair that failed, and has not worked since.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// In a row, and not explained by an engine's being at fault.
    failures: u32,
    /// Those of them that speak against the prefill engine, and against the decode engine: since it
    /// last worked with anybody, and not explained by the other one's being at fault.
    against: (u32, u32),
    last: Instant,
    tried: Option<Instant>,
}

/// One engine that was found at fault, or hands nothing over.
#[derive(Clone, Copy, Debug)]
struct Engine {
    /// Answers in a row with nothing to hand over.
    nothing: u32,
    is_at_fault: bool,
    last: Instant,
    tried: Option<Instant>,
}

/// Whether what failed last then is not to be tried yet.
fn rests(last: Instant, now: Instant) -> bool {
    now.saturating_duration_since(last) < REST
}

/// Whether somebody tries now, of whom the rest may learn.
fn is_tried(tried: Option<Instant>, now: Instant) -> bool {
    tried.is_some_and(|at| now.saturating_duration_since(at) < TRIAL)
}

impl Pair {
    fn is_at_fault(&self) -> bool {
        self.failures >= FAILURES
    }
}

impl Ledger {
    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.engines.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pairs.len() + self.engines.len()
    }

    #[cfg(test)]
    pub(super) fn later(&mut self, by: Duration) {
        let before = |at: &mut Instant| *at = at.checked_sub(by).unwrap();
        for pair in self.pairs.values_mut() {
            before(&mut pair.last);
            pair.tried.as_mut().map(before);
        }
        for engine in self.engines.values_mut() {
            before(&mut engine.last);
            engine.tried.as_mut().map(before);
        }
    }

    /// These two failed; what is at fault, where that is to be told: it is left out from now on.
    pub(super) fn failed(&mut self, prefill: &str, decode: &str, now: Instant) -> Option<Fault> {
        self.forget(now);
        let known = |fault, url: &str| self.rests(fault, url, now);
        let (p_is_out, d_is_out) = (known(Fault::Prefill, prefill), known(Fault::Decode, decode));
        let fresh = Pair { failures: 0, against: (0, 0), last: now, tried: None };
        let pair = self.pairs.entry((prefill.to_owned(), decode.to_owned())).or_insert(fresh);
        let link_is_out = pair.is_at_fault() && rests(pair.last, now);
        pair.failures = pair.failures.saturating_add(u32::from(!p_is_out && !d_is_out));
        pair.against.0 = pair.against.0.saturating_add(u32::from(!d_is_out));
        pair.against.1 = pair.against.1.saturating_add(u32::from(!p_is_out));
        pair.last = now;
        let failures = pair.failures;
        let (p_peers, d_peers) = (
            self.speaks_against(Fault::Prefill, prefill),
            self.speaks_against(Fault::Decode, decode),
        );
        let (fault, url, is_news) = match (p_peers, d_peers) {
            (None, None) => {
                let is_news = failures >= FAILURES && !link_is_out;
                return is_news.then_some(Fault::Link);
            }
            (Some(p), Some(d)) if d > p => (Fault::Decode, decode, !d_is_out),
            (None, Some(_)) => (Fault::Decode, decode, !d_is_out),
            (Some(_), _) => (Fault::Prefill, prefill, !p_is_out),
        };
        self.blame(fault, url, now);
        is_news.then_some(fault)
    }

    /// A prefill engine handed nothing over; whether it is at fault for that from now on.
    pub(super) fn nothing_handed(&mut self, prefill: &str, now: Instant) -> bool {
        self.forget(now);
        let was_out = self.rests(Fault::Prefill, prefill, now);
        let fresh = Engine { nothing: 0, is_at_fault: false, last: now, tried: None };
        let engine = self.engines.entry((Fault::Prefill, prefill.to_owned())).or_insert(fresh);
        engine.nothing = engine.nothing.saturating_add(1);
        engine.last = now;
        engine.is_at_fault |= engine.nothing >= FAILURES;
        engine.is_at_fault && !was_out
    }

    /// These two worked.
    pub(super) fn worked(&mut self, prefill: &str, decode: &str, now: Instant) {
        self.forget(now);
        self.engines.retain(|(fault, url), _| match fault {
            Fault::Prefill => url != prefill,
            Fault::Decode => url != decode,
            Fault::Link => false,
        });
        self.pairs.retain(|(p, d), _| p != prefill || d != decode);
        for ((p, d), pair) in &mut self.pairs {
            if p == prefill {
                pair.against.0 = 0;
            }
            if d == decode {
                pair.against.1 = 0;
            }
        }
    }

    /// A request is about to try these two: where one was at fault, others wait for what comes of it.
    pub(super) fn tries(&mut self, prefill: &str, decode: &str, now: Instant) {
        for (fault, url) in [(Fault::Prefill, prefill), (Fault::Decode, decode)] {
            if let Some(engine) = self.engines.get_mut(&(fault, url.to_owned())) {
                engine.tried = engine.is_at_fault.then_some(now);
            }
        }
        if let Some(pair) = self.pairs.get_mut(&(prefill.to_owned(), decode.to_owned())) {
            pair.tried = pair.is_at_fault().then_some(now);
        }
    }

    /// Whether an engine is left out: it failed lately, or one request tries it and others wait.
    pub(super) fn is_out(&self, fault: Fault, url: &str, now: Instant) -> bool {
        let known = self.engines.get(&(fault, url.to_owned()));
        known.is_some_and(|known| {
            known.is_at_fault && (rests(known.last, now) || is_tried(known.tried, now))
        })
    }

    /// Whether an engine at fault failed lately.
    fn rests(&self, fault: Fault, url: &str, now: Instant) -> bool {
        let known = self.engines.get(&(fault, url.to_owned()));
        known.is_some_and(|known| known.is_at_fault && rests(known.last, now))
    }

    /// Links that are left out, by prefill engine and decode engine.
    pub(super) fn links_out(&self, now: Instant) -> impl Iterator<Item = (&str, &str)> {
        let is_out = move |pair: &Pair| {
            pair.is_at_fault() && (rests(pair.last, now) || is_tried(pair.tried, now))
        };
        let out = self.pairs.iter().filter(move |(_, pair)| is_out(pair));
        out.map(|((prefill, decode), _)| (prefill.as_str(), decode.as_str()))
    }

    /// With how many others it failed, where that makes it the one at fault.
    fn speaks_against(&self, fault: Fault, url: &str) -> Option<usize> {
        let (mut failures, mut peers) = (0_u32, 0_usize);
        for ((p, d), pair) in &self.pairs {
            let (one, against) = match fault {
                Fault::Prefill => (p, pair.against.0),
                Fault::Decode | Fault::Link => (d, pair.against.1),
            };
            if one == url && against > 0 {
                failures = failures.saturating_add(against);
                peers += 1;
            }
        }
        (failures >= FAILURES && peers >= PEERS).then_some(peers)
    }

    /// It is at fault: that explains the failures of the others it failed with, and of what is between them.
    fn blame(&mut self, fault: Fault, url: &str, now: Instant) {
        let engine = Engine { nothing: 0, is_at_fault: true, last: now, tried: None };
        self.engines
            .entry((fault, url.to_owned()))
            .and_modify(|known| (known.is_at_fault, known.last) = (true, now))
            .or_insert(engine);
        for ((p, d), pair) in &mut self.pairs {
            match fault {
                Fault::Prefill if p == url => (pair.against.1, pair.failures) = (0, 0),
                Fault::Decode if d == url => (pair.against.0, pair.failures) = (0, 0),
                _ => {}
            }
        }
    }

    /// What is old, and what is too much.
    fn forget(&mut self, now: Instant) {
        let is_fresh = |last: Instant| now.saturating_duration_since(last) < FORGOTTEN;
        self.pairs.retain(|_, pair| is_fresh(pair.last));
        self.engines.retain(|_, engine| is_fresh(engine.last));
        while self.pairs.len() >= MOST {
            let oldest = self.pairs.iter().min_by_key(|(_, pair)| pair.last);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            self.pairs.remove(&oldest);
        }
        while self.engines.len() >= MOST {
            let oldest = self.engines.iter().min_by_key(|(_, engine)| engine.last);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            self.engines.remove(&oldest);
        }
    }
}
