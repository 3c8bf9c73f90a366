//! Which endpoint holds which KV-cache block.
//!
//! [`Inventory`] follows the store, remove and clear events of many endpoints and answers, for one
//! prompt and all endpoints in one pass, how much of the prompt each of them holds without a hole
//! from the first token: [`Overlap`]. It also defines the words the rest of Kvasir uses for that:
//! [`Tier`], [`EngineHash`], [`Trust`].
//!
//! The rule of the house: an overlap is never larger than what a naive reading of the endpoint's
//! own events says. Where the events leave a doubt (an unknown parent, a handle used twice, tokens
//! that do not line up with hashes), the doubt costs credit.
//!
//! This crate does no I/O, reads no clock and knows nothing of HTTP, sockets, requests or policies.

mod budget;
mod endpoint;
mod gates;
mod handles;
mod hashing;
mod index;
mod keying;
mod orphans;
mod overlap;
mod query;
mod residency;
mod slots;
mod stored;
mod sync;
mod table;
mod terms;
mod tiers;
mod trust;

pub use self::overlap::{Overlap, Overlaps};
pub use self::residency::{BlockSample, Inventory, Limits, Slot, SlotStats};
pub use self::stored::{Applied, Group, GroupKind, Identity, StoredBlocks};
pub use self::terms::{EngineHash, Tier};
pub use self::trust::{AbsentReason, PartialReason, SuspectReason, Trust};
