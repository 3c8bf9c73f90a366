//! What an engine's events say of the engine itself: the size of its blocks, its cache groups, how
//! many tokens ahead its hashes look.

use std::collections::BTreeMap;

use kvasir_inventory::{Group, GroupKind, Tier};
use kvasir_kv_events::{BlockStored, SpecKind};

/// More groups than any engine has.
const MOST_GROUPS: usize = 256;

/// What the events seen so far say.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) block_size: Option<u32>,
    /// The block size is that of a group of states, for want of another: those may be larger than
    /// the blocks of the other groups, which prompts are cut into.
    size_of_states: bool,
    /// States behind several blocks were seen.
    large_states: bool,
    /// `None` while nothing that tells was seen.
    pub(super) lookahead: Option<u32>,
    /// Blocks of one event looked ahead by different numbers of tokens.
    pub(super) lookahead_unclear: bool,
    /// The kinds of groups, where events said them.
    kinds: BTreeMap<u32, GroupKind>,
}

impl Shape {
    /// Everything stored is forgotten; the engine's own shape is not.
    pub(super) fn forget_groups(&mut self) {
        self.kinds.clear();
        self.lookahead_unclear = false;
    }

    /// Takes in an event; whether it contradicts what was seen before: a changed block size or
    /// lookahead on a stream is a new life. `told` is the block size that the engine tells.
    pub(super) fn see(
        &mut self,
        stored: &BlockStored,
        tier: Tier,
        by_hash: bool,
        told: Option<u32>,
    ) -> bool {
        let number = stored.group.unwrap_or(0);
        // Offload events have their own granularity; only device blocks tell.
        if tier != Tier::Device || !is_sized(stored, by_hash) || stored.block_hashes.is_empty() {
            return false;
        }
        let mut changed = false;
        let states = stored.spec_kind == Some(SpecKind::Mamba);
        if states && self.block_size.is_none() {
            let size = stored.block_size;
            let told = told.filter(|told| size.checked_rem(*told) == Some(0));
            self.block_size = told.filter(|_| size > 0).or(Some(size));
            self.size_of_states = true;
        } else if !states && (number == 0 || self.size_of_states) {
            let known = self.block_size.filter(|_| !self.size_of_states);
            changed = known.is_some_and(|known| known != stored.block_size);
            self.block_size = Some(stored.block_size);
            self.size_of_states = false;
        }
        match width(stored.lookahead_token_ids.as_deref()) {
            Some(width) => {
                changed |= self.lookahead.is_some_and(|known| known != width);
                self.lookahead = Some(width);
            }
            None => self.lookahead_unclear = true,
        }
        changed
    }

    /// The group of an event, with its kind.
    pub(super) fn group(&mut self, stored: &BlockStored, by_hash: bool) -> Group {
        let number = stored.group.unwrap_or(0);
        let here = stored.medium.tier() == Some(Tier::Device);
        let kind = self.kind(stored, number);
        let own_size = is_sized(stored, by_hash && here)
            && self.block_size.is_some_and(|known| known != stored.block_size);
        let multiple = |known: u32| stored.block_size.checked_rem(known) == Some(0);
        let large_state = own_size
            && kind == GroupKind::State
            && stored.block_size > 0
            && self.block_size.is_some_and(multiple);
        self.large_states |= large_state;
        match u8::try_from(number) {
            Ok(index) if !own_size || large_state => Group { index, kind },
            Ok(index) => Group { index, kind: GroupKind::Unsupported },
            Err(_) => Group { index: u8::MAX, kind: GroupKind::Unsupported },
        }
    }

    /// Whether a group's blocks are known by their handles alone, whatever tokens the events carry.
    ///
    /// The hash of a block of any group of vLLM's, whatever its size, is that of all tokens up to
    /// its end. So a state behind several blocks has the hash of the last of them, and the events
    /// of the group of those blocks tell which one that is.
    pub(super) fn by_handles(&self, group: Group) -> bool {
        self.large_states && group.kind == GroupKind::State
    }

    fn kind(&mut self, stored: &BlockStored, number: u32) -> GroupKind {
        let said = match &stored.spec_kind {
            Some(
                SpecKind::FullAttention | SpecKind::MlaAttention | SpecKind::SinkFullAttention,
            ) => GroupKind::FullAttention,
            Some(SpecKind::SlidingWindow | SpecKind::SlidingWindowMla) => {
                let tokens = stored.sliding_window.and_then(|tokens| u32::try_from(tokens).ok());
                tokens
                    .filter(|tokens| *tokens > 0)
                    .map_or(GroupKind::Unsupported, |tokens| GroupKind::SlidingWindow { tokens })
            }
            Some(SpecKind::Mamba) => GroupKind::State,
            Some(_) => GroupKind::Unsupported,
            // vLLM 0.20 and 0.21 number groups but do not say what they are, nor do some offload
            // events of later ones.
            None => match self.kinds.get(&number) {
                Some(known) => return *known,
                None if number == 0 => GroupKind::FullAttention,
                None => GroupKind::Unsupported,
            },
        };
        if self.kinds.len() < MOST_GROUPS {
            self.kinds.insert(number, said);
        }
        said
    }
}

/// Whether an event says how large its blocks are: by tokens, or where blocks are known by their
/// hashes, by the number alone.
fn is_sized(stored: &BlockStored, by_hash: bool) -> bool {
    !stored.token_ids.is_empty() || (by_hash && stored.block_size > 0)
}

/// By how many tokens all of the blocks look ahead; `None` where they differ.
fn width(lists: Option<&[Vec<u32>]>) -> Option<u32> {
    let Some(lists) = lists else { return Some(0) };
    let first = lists.first().map_or(0, Vec::len);
    let alike = lists.iter().all(|list| list.len() == first);
    u32::try_from(first).ok().filter(|_| alike)
}
