//! A pool's door ([`crate::admission`]): attached, found, replaced at a reload.

use std::sync::Arc;

use super::Pool;
use crate::admission::{AdmissionSpec, Door, Limits};

impl Pool {
    /// The same with a door, where it does not take everything at once: with that of the pool
    /// before, where it is to be the same.
    pub(crate) fn with_door(
        mut self,
        spec: Option<AdmissionSpec>,
        before: Option<&Arc<Door>>,
    ) -> Self {
        if let (None, Some(door)) = (&spec, before) {
            door.lift_limits();
        }
        self.door = spec.map(|spec| match before {
            Some(door) if *door.spec() == spec => Arc::clone(door),
            _ => Door::new(self.model.clone(), spec, before.map(|door| &**door)),
        });
        self
    }

    /// Its limits and its queue, where it does not take everything at once.
    #[must_use]
    pub fn door(&self) -> Option<&Arc<Door>> {
        self.door.as_ref()
    }

    pub(super) fn limits(&self) -> Option<&Limits> {
        self.door.as_ref().map(|door| &door.spec().limits)
    }
}
