//! Predicted against reported cached tokens.

use crate::facts::Facts;
use crate::probe::Probed;
use crate::report::Leg;

/// Adds the leg `prediction`.
pub(crate) fn leg(facts: &Facts, probed: &Probed, legs: &mut Vec<Leg>) {
    let _ = (facts, probed, legs);
}
