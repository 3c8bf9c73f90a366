//! How a pool lets requests in.

use std::sync::Arc;

use super::{Chosen, Pool};
use crate::admission::{AdmissionSpec, Asker, Door, Limits, NoRoom, Turn};

impl Pool {
    /// The same with a door, where it does not take everything at once: with that of the pool
    /// before, where it is to be the same.
    pub(crate) fn with_door(
        mut self,
        spec: Option<AdmissionSpec>,
        before: Option<&Arc<Door>>,
    ) -> Self {
        self.door = spec.map(|spec| match before {
            Some(door) if *door.spec() == spec => Arc::clone(door),
            _ => Door::new(self.model.clone(), spec),
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

    /// Has `attempt` choose an endpoint: at once, or where there is no room, when the asker's turn
    /// has come. An attempt may be made several times, and holds up whoever waits behind.
    pub async fn admit(
        &self,
        door: &Door,
        asker: Asker,
        attempt: impl FnMut() -> Result<Chosen, NoRoom>,
    ) -> Turn<Chosen> {
        door.admit(|| self.members(), asker, attempt).await
    }
}
