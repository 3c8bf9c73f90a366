//! `consistent_hash`: requests with one key go to one endpoint, whatever its load.
//!
//! As rolter's, with `LoxiLB`'s parts of a key (adapter, salt, tools). Theirs are rings of virtual
//! nodes; this is rendezvous hashing ([`crate::hashed`]): with `u(key, e)` in (0, 1] a hash of the key
//! and the endpoint's id, the least `-ln(u(key, e)) / weight(e)` wins.

use serde::{Deserialize, Serialize};

use crate::choice::{Choice, Reason};
use crate::hashed::{self, HashKey, KeyParts};
use crate::policy::{Moment, Policy};
use crate::query::{Needs, Query};
use crate::view::FleetView;

/// Takes the candidate that the request's key prefers, by rendezvous hashing. By default the key is
/// the conversation, else the first tokens of the prompt, else its first text; with none of them
/// it has no say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsistentHash {
    /// What the key is made of.
    pub key: KeyParts,
}

impl Default for ConsistentHash {
    fn default() -> Self {
        Self { key: KeyParts { by: HashKey::Session, ..KeyParts::default() } }
    }
}

impl Policy for ConsistentHash {
    fn name(&self) -> &'static str {
        "consistent_hash"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn needs(&self) -> Needs {
        Needs { session: true, head: true, images: self.key.images, ..Needs::default() }
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        _: &mut Moment<'_>,
    ) -> Option<Choice> {
        let index = hashed::first(self.key.of(query)?, view.candidates)?;
        Some(Choice::plain(index, Reason::Hashed))
    }
}
