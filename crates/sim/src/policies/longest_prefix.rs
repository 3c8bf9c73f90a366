//! The longest cached prefix and nothing else; of several, the first in the list. What routers do
//! that ask an index for the best match and look no further.

use kvasir_balance::FleetView;

pub(super) fn choose(view: &FleetView<'_>) -> Option<usize> {
    let held = |place: usize| view.candidates[place].overlap.resident();
    // The first of the greatest: `max_by_key` alone would take the last.
    (0..view.candidates.len()).rev().max_by_key(|place| held(*place))
}
