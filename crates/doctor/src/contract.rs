//! What the events show: their form, the block size, the hash contract.

mod block_size;
mod by_hashes;
mod convert;
mod hash;
mod seeds;
mod wire;

use crate::facts::Facts;
use crate::probe::Probed;
use crate::report::Leg;
use crate::stream::Collected;
use crate::target::Target;

/// Adds the legs `wire`, `block_size` and `hash_contract`.
pub(crate) fn legs(
    target: &Target,
    facts: &Facts,
    probed: &Probed,
    events: Option<&Collected>,
    legs: &mut Vec<Leg>,
) {
    legs.push(wire::leg(target, probed, events));
    legs.push(block_size::leg(target, facts, events));
    legs.push(hash::leg(target, facts, probed, events));
}

/// What would bring an event.
fn to_hear_events(probed: &Probed) -> &'static str {
    if probed.leave {
        "no event came of the probe's prompts: see the legs prefix_caching, events (and its topic) and prediction"
    } else {
        "run with --probe, or again once there was traffic"
    }
}

#[cfg(test)]
mod tests;
