//! Which cache groups each endpoint has, and so what a prefix needs there before it counts.

use std::sync::Arc;

use crate::residency::Slot;
use crate::stored::{Group, GroupKind};
use crate::sync::{AtomicU32, Ordering, RwLock};

/// What has to hold before an endpoint's blocks count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Nothing counts: no group was seen yet, or one that is not understood.
    #[default]
    Closed,
    /// Every block of the prefix, in this group.
    One(u8),
    /// What each of several groups, or of any that is not full attention, needs.
    Each(Arc<[Group]>),
}

/// What [`Open::group`] says of a gate that is closed, and of one of several groups.
pub(crate) const CLOSED: u16 = 0x100;
pub(crate) const EACH: u16 = 0x101;

/// The gates of all endpoints, as a reader sees them.
#[derive(Debug, Default)]
pub(crate) struct Open {
    gates: Vec<Gate>,
    /// The same in two bytes each: the group where it is one of full attention.
    groups: Vec<u16>,
}

impl Open {
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The only group that an endpoint needs, or [`CLOSED`] or [`EACH`].
    pub(crate) fn group(&self, slot: Slot) -> u16 {
        self.groups.get(slot.index()).copied().unwrap_or(CLOSED)
    }

    /// What each of several groups needs.
    pub(crate) fn each(&self, slot: Slot) -> Option<&[Group]> {
        match self.gates.get(slot.index()) {
            Some(Gate::Each(groups)) => Some(groups),
            _ => None,
        }
    }
}

/// The gates of all endpoints.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    by_slot: RwLock<Open>,
    /// Endpoints that may hold a prefix without its first block.
    headless: AtomicU32,
}

/// The groups that one endpoint was seen to have since the last clear.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    seen: Vec<Group>,
    pub(crate) unsupported: bool,
}

impl Gate {
    fn is_headless(&self) -> bool {
        let full = |group: &Group| group.kind == GroupKind::FullAttention;
        matches!(self, Self::Each(groups) if !groups.iter().any(full))
    }
}

impl Gates {
    /// Opens or closes an endpoint's gate. Whoever reads under [`Gates::all`] has ended before.
    pub(crate) fn set(&self, slot: Slot, gate: Gate) {
        let mut open = self.by_slot.write();
        if open.len() <= slot.index() {
            open.gates.resize(slot.index() + 1, Gate::Closed);
            open.groups.resize(slot.index() + 1, CLOSED);
        }
        open.groups[slot.index()] = match gate {
            Gate::Closed => CLOSED,
            Gate::One(group) => u16::from(group),
            Gate::Each(_) => EACH,
        };
        let is = gate.is_headless();
        let was = std::mem::replace(&mut open.gates[slot.index()], gate).is_headless();
        let change = u32::from(is).wrapping_sub(u32::from(was));
        self.headless.fetch_add(change, Ordering::Relaxed);
    }

    /// The gates of all endpoints, by slot, for as long as the closure runs, and whether any
    /// endpoint may hold a prefix without its first block.
    pub(crate) fn all<T>(&self, read: impl FnOnce(&Open, bool) -> T) -> T {
        let gates = self.by_slot.read();
        read(&gates, self.headless.load(Ordering::Relaxed) > 0)
    }
}

impl Groups {
    /// Notes a group; the endpoint's gate, if that changes it.
    ///
    /// Two kinds for one group are a contradiction: then nothing counts any more.
    pub(crate) fn see(&mut self, group: Group) -> Option<Gate> {
        let known = self.seen.iter().find(|known| known.index == group.index);
        if known == Some(&group) || self.unsupported {
            return None;
        }
        if known.is_some() || group.kind == GroupKind::Unsupported {
            self.unsupported = true;
            return Some(Gate::Closed);
        }
        self.seen.push(group);
        self.seen.sort_by_key(|group| group.index);
        Some(match self.seen[..] {
            [Group { index, kind: GroupKind::FullAttention }] => Gate::One(index),
            _ => Gate::Each(self.seen.as_slice().into()),
        })
    }
}
