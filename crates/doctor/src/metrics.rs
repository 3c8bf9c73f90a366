//! The metric families the gateway reads.

use crate::facts::Facts;
use crate::probe::Probed;
use crate::report::Leg;
use crate::target::Target;

/// Adds the leg `metrics`. Families register lazily, so they are looked for last.
pub(crate) async fn legs(target: &Target, facts: &Facts, probed: &Probed, legs: &mut Vec<Leg>) {
    let _ = (target, facts, probed, legs);
}
