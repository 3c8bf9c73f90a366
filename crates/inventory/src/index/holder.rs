//! Who holds which part of a run of blocks, run-length encoded in eight bytes a piece.
//!
//! A list of [`Holder`]s is sorted; for one endpoint and group its pieces do not overlap, and
//! neighbours that touch differ in their marks. A piece of group 0 can carry [`KNOWN`]: the
//! endpoint has handles for these blocks, whether or not any copy is left.

use std::ops::Range;

use crate::budget::{Bytes, grow};
use crate::residency::Slot;
use crate::tiers::TierSet;

/// The mark of blocks that an endpoint has handles for.
pub(crate) const KNOWN: u8 = 0x80;

/// One piece: slot (16 bits), group (8), start (16), end (16), marks (8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder(u64);

impl Holder {
    fn new(place: Place, start: u16, end: u16, marks: u8) -> Self {
        let range = u64::from(start) << 24 | u64::from(end) << 8;
        Self(
            u64::from(place.slot.number()) << 48
                | u64::from(place.group) << 40
                | range
                | u64::from(marks),
        )
    }

    pub(crate) fn slot(self) -> Slot {
        Slot::new((self.0 >> 48) as u16)
    }

    pub(crate) fn group(self) -> u8 {
        (self.0 >> 40) as u8
    }

    pub(crate) fn start(self) -> u16 {
        (self.0 >> 24) as u16
    }

    pub(crate) fn end(self) -> u16 {
        (self.0 >> 8) as u16
    }

    pub(crate) fn tiers(self) -> TierSet {
        TierSet(self.marks() & TierSet::ALL.0)
    }

    fn marks(self) -> u8 {
        self.0 as u8
    }

    fn place(self) -> Place {
        Place { slot: self.slot(), group: self.group() }
    }

    pub(crate) fn is_at(self, at: u16) -> bool {
        self.overlaps(&(at..at + 1))
    }

    fn overlaps(self, range: &Range<u16>) -> bool {
        self.start() < range.end && range.start < self.end()
    }
}

/// One group of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) slot: Slot,
    pub(crate) group: u8,
}

impl Place {
    /// Where an endpoint's [`KNOWN`] marks are.
    pub(crate) fn known(slot: Slot) -> Self {
        Self { slot, group: 0 }
    }
}

/// Where the pieces of a slot are.
pub(crate) fn of_slot(list: &[Holder], slot: Slot) -> Range<usize> {
    let start = list.partition_point(|holder| holder.slot() < slot);
    let len = list[start..].iter().take_while(|holder| holder.slot() == slot).count();
    start..start + len
}

/// The tiers of all of an endpoint's copies of one block, in any group.
pub(crate) fn tiers_at(list: &[Holder], slot: Slot, at: u16) -> TierSet {
    let here = list[of_slot(list, slot)].iter().filter(|h| h.is_at(at));
    here.fold(TierSet::default(), |all, holder| all.with(holder.tiers()))
}

/// The marks of one block at one place.
#[cfg(test)]
pub(crate) fn marks_at(list: &[Holder], place: Place, at: u16) -> u8 {
    let here = |h: &&Holder| h.place() == place && h.is_at(at);
    list.iter().find(here).map_or(0, |holder| holder.marks())
}

/// The blocks of `range` for which an endpoint has a mark of `mask` in any group, as a bit each
/// of what is returned in order; `None` when there is none.
pub(crate) fn marked(
    list: &[Holder],
    slot: Slot,
    range: &Range<u16>,
    mask: u8,
) -> Option<Vec<u16>> {
    let pieces = &list[of_slot(list, slot)];
    if !pieces.iter().any(|h| h.marks() & mask != 0 && h.overlaps(range)) {
        return None;
    }
    let has = |at: &u16| pieces.iter().any(|h| h.marks() & mask != 0 && h.is_at(*at));
    Some(range.clone().filter(has).collect())
}

/// Changes the marks of `range` at one place; `false`, and nothing done, where the list would
/// have to grow and may not.
pub(crate) fn change(
    list: &mut Vec<Holder>,
    place: Place,
    range: Range<u16>,
    to: impl Fn(u8) -> u8,
    bytes: &mut impl Bytes,
) -> bool {
    let first = list.partition_point(|h| h.place() < place);
    let len = list[first..].iter().take_while(|h| h.place() == place).count();
    // Those before the range and those behind it stay, but for one neighbour on each side, which
    // may become one piece with what is changed.
    let run = &list[first..first + len];
    let from = run.partition_point(|h| h.end() < range.start);
    let until = from + run[from..].iter().take_while(|h| h.start() <= range.end).count();
    let mut pieces = Pieces::new(place);
    let mut at = range.start;
    for holder in &run[from..until] {
        pieces.push(holder.start(), holder.end().min(range.start), holder.marks());
        let (start, end) = (holder.start().max(range.start), holder.end().min(range.end));
        if start < end {
            pieces.push(at, start, to(0));
            pieces.push(start, end, to(holder.marks()));
            at = end;
        }
        if holder.end() > range.end {
            pieces.push(at, range.end, to(0));
            at = range.end;
            pieces.push(holder.start().max(range.end), holder.end(), holder.marks());
        }
    }
    if at < range.end {
        pieces.push(at, range.end, to(0));
    }
    let (from, until) = (first + from, first + until);
    let new = pieces.finish();
    if new.len() > until - from && !grow(list, new.len() - (until - from), bytes) {
        return false;
    }
    if new.len() == until - from {
        list[from..until].copy_from_slice(new);
    } else {
        list.splice(from..until, new.iter().copied());
    }
    true
}

/// Changes the marks of every piece that overlaps `range`, as a whole: needs no room.
pub(crate) fn change_whole(list: &mut Vec<Holder>, slot: Slot, range: &Range<u16>, keep: u8) {
    let pieces = of_slot(list, slot);
    for holder in &mut list[pieces] {
        if holder.overlaps(range) {
            *holder =
                Holder::new(holder.place(), holder.start(), holder.end(), holder.marks() & keep);
        }
    }
    list.retain(|holder| holder.marks() != 0);
}

/// New pieces of one place, joined where they touch and are alike.
struct Pieces {
    place: Place,
    /// The last one, which may still grow.
    last: Option<Holder>,
    /// Those before it: few, where one block or the end of a run changes.
    few: [Holder; 3],
    len: usize,
    more: Vec<Holder>,
}

impl Pieces {
    fn new(place: Place) -> Self {
        Self { place, last: None, few: [Holder(0); 3], len: 0, more: Vec::new() }
    }

    fn push(&mut self, start: u16, end: u16, marks: u8) {
        if start >= end || marks == 0 {
            return;
        }
        if let Some(last) = &mut self.last
            && last.end() == start
            && last.marks() == marks
        {
            *last = Holder::new(self.place, last.start(), end, marks);
        } else if let Some(last) = self.last.replace(Holder::new(self.place, start, end, marks)) {
            self.keep(last);
        }
    }

    fn keep(&mut self, piece: Holder) {
        match self.few.get_mut(self.len) {
            Some(place) => {
                *place = piece;
                self.len += 1;
            }
            None => {
                if self.more.is_empty() {
                    self.more.extend_from_slice(&self.few);
                }
                self.more.push(piece);
            }
        }
    }

    fn finish(&mut self) -> &[Holder] {
        if let Some(last) = self.last.take() {
            self.keep(last);
        }
        if self.more.is_empty() { &self.few[..self.len] } else { &self.more }
    }
}
