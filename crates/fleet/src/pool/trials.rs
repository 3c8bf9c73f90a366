//! Places of trials, taken before a choice is made.
//!
//! How many requests may try a half-open engine is limited, and others may ask at the same moment,
//! through other pools too. Whoever chose first and then found the last place gone would have to
//! choose again: policies would have counted a choice that was not made, and the log would have it.
//! So a request holds a place at each engine it might try, and gives back those it does not use.

use std::sync::Arc;

use kvasir_balance::Exclusion;

use crate::admission;
use crate::endpoint::Endpoint;
use crate::health::Standing;

/// The places one choice holds, one at each engine whichever of its ranks is chosen; dropping them
/// gives them back.
#[derive(Debug)]
pub(super) struct Trials<'a>(Vec<(&'a Endpoint, Standing)>);

impl<'a> Trials<'a> {
    /// Takes a place at every endpoint that is not excluded and whose breaker is not closed; where
    /// there is none (any more) it is excluded. Those that were being tried a moment ago are looked
    /// at again by `excluded`: who held their place may have given it back.
    pub(super) fn hold(
        endpoints: &'a [Arc<Endpoint>],
        exclusions: &mut [Option<Exclusion>],
        excluded: &dyn Fn(&Arc<Endpoint>) -> Option<Exclusion>,
    ) -> Self {
        let mut held: Vec<(&Endpoint, Standing)> = Vec::new();
        for (endpoint, exclusion) in endpoints.iter().zip(exclusions) {
            let is_held = |held: &[(&Endpoint, _)]| held.iter().any(|h| h.0.same_engine(endpoint));
            match exclusion {
                None if endpoint.breaker_is_closed() || is_held(&held) => continue,
                None => {}
                // Another rank of an engine that may be tried.
                Some(Exclusion::HalfOpen) if is_held(&held) => {
                    *exclusion = None;
                    continue;
                }
                Some(Exclusion::HalfOpen) => *exclusion = excluded(endpoint),
                Some(_) => continue,
            }
            if exclusion.is_some() {
                continue;
            }
            let standing = endpoint.send();
            if standing.is_surplus() {
                *exclusion = Some(Exclusion::HalfOpen);
            } else {
                held.push((endpoint, standing));
            }
        }
        Self(held)
    }

    /// The place at an endpoint that was chosen, if one was held there.
    pub(super) fn take(&mut self, chosen: &Endpoint) -> Option<Standing> {
        let at = self.0.iter().position(|(held, _)| held.same_engine(chosen))?;
        Some(self.0.swap_remove(at).1)
    }

    /// Those that were chosen were taken: the others are free again, and whoever waited and found them
    /// taken hears of it. Where nobody was chosen they are just dropped: the one who looked waits then,
    /// and would only wake itself.
    pub(super) fn give_back(self) {
        for (endpoint, standing) in self.0 {
            drop(standing);
            admission::ring(endpoint);
        }
    }
}
