//! Lets the gateway log its decisions.

use super::World;
use crate::decisions::Sink;

impl World<'_> {
    /// From now on, which should be the beginning.
    pub(crate) fn log_to(&mut self, sink: &Sink) {
        self.gateways.iter_mut().for_each(|gateway| gateway.log_to(sink));
    }
}
