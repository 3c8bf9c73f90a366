//! Whose fault it is where KV is not handed over, by evidence, and who is left out of it for a while.
//!
//! A decode engine that cannot fetch does not know why. So failures are kept by pair, and who failed
//! with several others, and with nobody worked since, is at fault: a prefill engine whose blocks
//! several decode engines could not fetch, a decode engine that could fetch from none of several prefill
//! engines. Where it is one pair again and again, it is the link of these two. Which of two engines at
//! fault has failed with more others explains the failures of the other; where that is the same it is
//! the prefill engine, without which decode engines can still do all of it.
//!
//! ```text
//! engine at fault   FAILURES since it last worked with anybody, with PEERS others at least
//! link at fault     FAILURES in a row, and neither engine
//! left out          for REST since its last failure; then one request tries it every TRIAL, and with
//!                   one more failure it is left out again
//! forgotten         with the next hand-over that works, or after FORGOTTEN without a failure
//! ```

mod counts;
mod ledger;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kvasir_balance::{Cut, Role};
use parking_lot::Mutex;

pub(crate) use self::counts::HandOverCounts;
pub(crate) use self::ledger::Fault;
use self::ledger::Ledger;
use crate::endpoint::Endpoint;

/// A choice is told of so many at most.
const MOST_CUTS: usize = 256;

/// What is known of hand-overs between all engines.
#[derive(Debug, Default)]
pub(crate) struct HandOvers {
    /// Whether anything failed lately: the usual case costs no lock.
    any: AtomicBool,
    ledger: Mutex<Ledger>,
}

impl HandOvers {
    /// A decode engine could not fetch what a prefill engine had computed.
    pub(crate) fn failed(&self, prefill: &Endpoint, decode: &Endpoint) {
        let (from, to) = (prefill.engine().hand_over_counts(), decode.engine().hand_over_counts());
        from.failed(Role::Prefill);
        to.failed(Role::Decode);
        self.any.store(true, Ordering::Relaxed);
        let fault = self.ledger.lock().failed(prefill.url(), decode.url(), Instant::now());
        let Some(fault) = fault else { return };
        match fault {
            Fault::Prefill => from.blamed(fault),
            Fault::Decode => to.blamed(fault),
            Fault::Link => [from, to].into_iter().for_each(|counts| counts.blamed(fault)),
        }
        tracing::warn!(
            prefill = prefill.url(),
            decode = decode.url(),
            fault = fault.as_str(),
            "KV is not handed over: what is at fault is left out of split requests for a while"
        );
    }

    /// A prefill engine answered without anything to hand over.
    pub(crate) fn nothing_handed(&self, prefill: &Endpoint) {
        let counts = prefill.engine().hand_over_counts();
        counts.failed(Role::Prefill);
        self.any.store(true, Ordering::Relaxed);
        if self.ledger.lock().nothing_handed(prefill.url(), Instant::now()) {
            counts.blamed(Fault::Prefill);
            tracing::warn!(
                prefill = prefill.url(),
                "prefill engine hands nothing over: it is left out of split requests for a while"
            );
        }
    }

    /// A decode engine goes on from what a prefill engine has computed.
    pub(crate) fn worked(&self, prefill: &Endpoint, decode: &Endpoint) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut ledger = self.ledger.lock();
        ledger.worked(prefill.url(), decode.url(), Instant::now());
        self.any.store(!ledger.is_empty(), Ordering::Relaxed);
    }

    /// A request was given to these two: where one of them was at fault it is the one that tries.
    pub(crate) fn tries(&self, prefill: &Endpoint, decode: &Endpoint) {
        if self.any.load(Ordering::Relaxed) {
            self.ledger.lock().tries(prefill.url(), decode.url(), Instant::now());
        }
    }

    /// As if so much time had gone by.
    #[cfg(test)]
    pub(crate) fn later(&self, by: std::time::Duration) {
        self.ledger.lock().later(by);
    }

    /// Who among these hands over nothing now. `role` tells their parts.
    pub(crate) fn cuts(
        &self,
        endpoints: &[Arc<Endpoint>],
        role: impl Fn(&Endpoint) -> Role,
    ) -> Vec<Cut> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let (ledger, now) = (self.ledger.lock(), Instant::now());
        let mut cuts = Vec::new();
        let of = |part: Role, url: Option<&str>| -> Vec<usize> {
            let all = endpoints.iter().enumerate();
            let is_it =
                |one: &Endpoint| role(one) == part && url.is_none_or(|url| one.url() == url);
            all.filter(|(_, one)| is_it(one)).map(|(place, _)| place).collect()
        };
        let out = |fault: Fault, place: &usize| {
            endpoints.get(*place).is_some_and(|one| ledger.is_out(fault, one.url(), now))
        };
        let prefill = of(Role::Prefill, None).into_iter().filter(|at| out(Fault::Prefill, at));
        cuts.extend(prefill.map(Cut::Prefill));
        let decode = of(Role::Decode, None).into_iter().filter(|at| out(Fault::Decode, at));
        cuts.extend(decode.map(Cut::Decode));
        for (from, to) in ledger.links_out(now) {
            for prefill in of(Role::Prefill, Some(from)) {
                let ends = of(Role::Decode, Some(to)).into_iter();
                cuts.extend(ends.map(|decode| Cut::Link { prefill, decode }));
            }
        }
        cuts.truncate(MOST_CUTS);
        cuts
    }

    /// Whether a decode engine is known to fetch nothing from a prefill engine now.
    pub(crate) fn is_cut(&self, prefill: &Endpoint, decode: &Endpoint) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let (ledger, now) = (self.ledger.lock(), Instant::now());
        let (from, to) = (prefill.url(), decode.url());
        ledger.is_out(Fault::Prefill, from, now)
            || ledger.is_out(Fault::Decode, to, now)
            || ledger.links_out(now).any(|link| link == (from, to))
    }

    /// Whether an engine is left out now, and how many of its links are.
    pub(crate) fn left_out(&self, url: &str) -> [(Fault, usize); 3] {
        let (ledger, now) = (self.ledger.lock(), Instant::now());
        let links = ledger.links_out(now).filter(|(from, to)| *from == url || *to == url).count();
        let is_out = |fault| usize::from(ledger.is_out(fault, url, now));
        [
            (Fault::Prefill, is_out(Fault::Prefill)),
            (Fault::Decode, is_out(Fault::Decode)),
            (Fault::Link, links),
        ]
    }
}
