//! The hit boundary of endpoints with several cache groups, or with groups that do not need every
//! block: the longest prefix that all of them hold.

use crate::index::holder::Holder;
use crate::overlap::Overlap;
use crate::residency::Slot;
use crate::stored::{Group, GroupKind};
use crate::terms::Tier;

/// Consecutive blocks of the prompt whose fastest copies in one group are in one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u32,
    end: u32,
    tier: Tier,
}

/// What one endpoint holds of a prompt, by group.
pub(super) struct Held<'a> {
    slot: Slot,
    groups: &'a [Group],
    /// In the order of the groups.
    pieces: Vec<Vec<Piece>>,
    over: bool,
}

impl<'a> Held<'a> {
    pub(super) fn new(slot: Slot, groups: &'a [Group]) -> Self {
        Self { slot, groups, pieces: vec![Vec::new(); groups.len()], over: false }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Whether later blocks cannot change the result: a group that needs every block lacks one.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Takes in the endpoint's part of a stretch of `len` blocks from block `at` on.
    pub(super) fn see(&mut self, at: usize, run: &[Holder], len: u16) {
        for holder in run {
            let group = self.groups.iter().position(|group| group.index == holder.group());
            let (Some(group), Some(tier)) = (group, holder.tiers().fastest()) else { continue };
            let (start, end) = (holder.start().min(len), holder.end().min(len));
            if start < end {
                let at = at as u32;
                let (start, end) = (at + u32::from(start), at + u32::from(end));
                self.pieces[group].push(Piece { start, end, tier });
            }
        }
    }

    /// All blocks before `at` were seen.
    pub(super) fn end(&mut self, at: usize) {
        let full = |group: &Group| group.kind == GroupKind::FullAttention;
        let groups = self.groups.iter().zip(&self.pieces).filter(|(group, _)| full(group));
        self.over = groups.map(|(_, pieces)| unbroken(pieces)).any(|end| (end as usize) < at);
    }

    pub(super) fn overlap(&self, block_size: u32) -> Overlap {
        let needs: Vec<u32> =
            self.groups.iter().map(|group| group.kind.blocks(block_size)).collect();
        let mut overlap = Overlap::default();
        let end = self.boundary(&needs);
        // The tier changes only where some group's piece or need begins or ends.
        let ends = self.pieces.iter().flatten().flat_map(|piece| [piece.start, piece.end]);
        let mut cuts: Vec<u32> = ends.chain(needs.iter().map(|n| end.saturating_sub(*n))).collect();
        cuts.extend([0, end]);
        cuts.retain(|cut| *cut <= end);
        cuts.sort_unstable();
        cuts.dedup();
        for cut in cuts.windows(2) {
            let needed = |(pieces, needs): (&Vec<Piece>, &u32)| {
                let first = end.saturating_sub(*needs);
                let piece = pieces.iter().find(|p| p.start <= cut[0] && cut[0] < p.end);
                piece.filter(|_| cut[0] >= first).map(|piece| piece.tier)
            };
            // The slowest of the groups that need the block; where none does, nothing is loaded.
            let slowest = self.pieces.iter().zip(&needs).filter_map(needed).max();
            let tokens = (cut[1] - cut[0]).saturating_mul(block_size);
            overlap.add(slowest.unwrap_or(Tier::Device), tokens);
        }
        overlap
    }

    /// The longest prefix, in blocks, that every group holds; `needs` is how many blocks at its
    /// end each of them needs.
    fn boundary(&self, needs: &[u32]) -> u32 {
        let mut boundary = u32::MAX;
        loop {
            let before = boundary;
            for (pieces, needs) in self.pieces.iter().zip(needs) {
                boundary = longest(pieces, *needs, boundary);
            }
            if boundary == before {
                return boundary;
            }
        }
    }
}

/// Where the blocks that are there from the first one on end.
fn unbroken(pieces: &[Piece]) -> u32 {
    pieces.iter().fold(0, |end, piece| if piece.start == end { piece.end } else { end })
}

/// The longest prefix of at most `most` blocks whose last `needs` blocks, or all, are there.
fn longest(pieces: &[Piece], needs: u32, most: u32) -> u32 {
    let mut best = 0;
    let mut start = 0;
    let mut end = 0;
    for piece in pieces {
        if piece.start != end {
            start = piece.start;
        }
        end = piece.end;
        let reach = end.min(most);
        // From the prompt's start on fewer blocks will do: there are no more.
        if reach > start && (start == 0 || reach - start >= needs) {
            best = reach;
        }
    }
    best
}
