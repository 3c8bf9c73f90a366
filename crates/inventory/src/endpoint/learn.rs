//! What a handle comes to stand for, and what it stood for before.

use super::{Endpoint, Lesson, Link, Scratch, Shared};
use crate::budget::Share;
use crate::handles::Known;
use crate::index::{At, Put};
use crate::keying::Keyer;
use crate::orphans::Orphan;
use crate::table::Full;
use crate::terms::EngineHash;
use crate::tiers::TierSet;

impl Endpoint {
    /// [Learns](Self::learn) handles that are all unknown, in one go, while nothing waits for any.
    pub(super) fn learn_all(
        &mut self,
        Scratch { keys, names, stretches, .. }: &mut Scratch,
        link: Link,
        (group, tiers): (u8, TierSet),
        shared: Shared<'_>,
    ) -> usize {
        let put = Put { slot: shared.slot, group, tiers };
        let share = shared.index.budget().ordinary();
        stretches.clear();
        shared.index.add(link.at, keys, put, |at, len, added| stretches.push((at, len, added)));
        let mut learned = 0;
        let mut full = false;
        for (first, len, added) in stretches.drain(..) {
            self.count_added(&added);
            self.aliased_keys += added.held as u64;
            let mut done = 0;
            while done < len && !full {
                let at = At { offset: first.offset + done as u16, ..first };
                let depth = link.depth.saturating_add((learned + done) as u32);
                let end = if added.known.is_empty() { len } else { done + 1 };
                let second = added.known.contains(&at.offset);
                if second && !self.handles.share(at, &mut self.own, share) {
                    full = true;
                    break;
                }
                let names = &names[learned + done..learned + end];
                let (new, twice) = self.handles.learn_new(names, at, depth, &mut self.own, share);
                done += new;
                if let Some(old) = twice {
                    // The same handle twice in one event: it means the later block.
                    self.leave(old, shared);
                    done += 1;
                } else if done < end {
                    if second {
                        self.handles.release(at, &mut self.own, share);
                    }
                    full = true;
                }
            }
            // Once there is no room for one, those behind it go as well.
            for offset in (first.offset..).take(len).skip(done) {
                self.undo(At { offset, ..first }, added.known.contains(&offset), shared);
            }
            learned += done;
        }
        learned
    }

    /// Makes `hash` stand for a block and credits its copies; a block without any leaves only its
    /// place in the chain. What the handle stood for before loses its credit. `None` when there is
    /// no room.
    pub(super) fn learn(
        &mut self,
        lesson: Lesson<'_>,
        link: Link,
        shared: Shared<'_>,
    ) -> Option<Link> {
        let Lesson { hash, key, copies } = lesson;
        let share = shared.index.budget().ordinary();
        let waiting = self.orphans.remove(hash, &mut self.own, share);
        let bare = waiting.map(Orphan::into_bare_copies).unwrap_or_default();
        let mut copies = copies.iter().chain(&bare).copied();
        let put = |(group, tiers)| Put { slot: shared.slot, group, tiers };
        let first = copies.next();
        let mut placed = None;
        let wanted = put(first.unwrap_or((0, TierSet::default())));
        shared.index.add(link.at, &[key], wanted, |at, _, added| placed = Some((at, added)));
        let (at, added) = placed?;
        self.count_added(&added);
        let was = self.handles.get(hash);
        let second = !added.known.is_empty() && was.is_none_or(|was| was.at != at);
        if self.name(hash, at, link.depth, second, shared, share).is_err() {
            self.undo(at, second, shared);
            return None;
        }
        if first.is_none() {
            self.retire(hash, shared);
        } else if added.held > 0 && was != Some(Known { at, live: true }) {
            self.aliased_keys += 1;
        }
        for copy in copies {
            match shared.index.add_at(at, put(copy)) {
                Some(added) => self.count_added(&added),
                None => self.given_up += 1,
            }
        }
        Some(Link { at: Some(at), key, depth: link.depth.saturating_add(1) })
    }

    /// Enters a handle; `second` where another stands for the same block.
    fn name(
        &mut self,
        hash: EngineHash,
        at: At,
        depth: u32,
        second: bool,
        shared: Shared<'_>,
        share: Share<'_>,
    ) -> Result<(), Full> {
        if second && !self.handles.share(at, &mut self.own, share) {
            return Err(Full);
        }
        let was = self.handles.learn(hash, at, depth, &mut self.own, share);
        match was {
            Ok(Some(old)) if old.at != at => self.leave(old.at, shared),
            Ok(_) => {}
            Err(Full) => {
                if second {
                    self.handles.release(at, &mut self.own, share);
                }
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Takes back a block that could not be given its handle; `second` where it has another.
    fn undo(&mut self, at: At, second: bool, shared: Shared<'_>) {
        let change = if second {
            // Its removal would not be understood: no copy of it may be credited.
            shared.index.reduce(at, shared.slot, None, TierSet::default())
        } else {
            shared.index.forget(at, shared.slot)
        };
        self.count(change);
    }

    /// Ends what a handle stood for that means something else now, or nothing. The block's place
    /// stays good until [`Self::settle`].
    pub(super) fn leave(&mut self, at: At, shared: Shared<'_>) {
        self.undo(at, true, shared);
        self.leaving.push(at);
    }

    /// Ends the use of places whose handles are gone: the last step of an event.
    pub(super) fn settle(&mut self, shared: Shared<'_>) {
        let share = shared.index.budget().reserve();
        while let Some(at) = self.leaving.pop() {
            if self.handles.release(at, &mut self.own, share) {
                let change = shared.index.forget(at, shared.slot);
                self.count(change);
            }
        }
    }

    /// Adds copies to a block whose handle is known, and makes the handle live.
    pub(super) fn credit(
        &mut self,
        hash: EngineHash,
        known: Known,
        put: Put,
        shared: Shared<'_>,
    ) -> bool {
        let Some(added) = shared.index.add_at(known.at, put) else { return false };
        self.count_added(&added);
        if !known.live {
            self.aliased_keys += u64::from(added.held > 0);
            let depth = shared.index.block(known.at).map_or(0, |(_, depth)| depth);
            let share = shared.index.budget().ordinary();
            // The handle is there: this needs no room.
            let _ = self.handles.learn(hash, known.at, depth, &mut self.own, share);
        }
        true
    }

    /// Remembers a handle whose block went away, as long as there is room for it.
    pub(super) fn retire(&mut self, hash: EngineHash, shared: Shared<'_>) {
        let share = shared.index.budget().ordinary();
        self.handles.retire(hash, &mut self.own, share);
        while let Some(at) = self.handles.drop_oldest(false, &mut self.own) {
            self.leave(at, shared);
        }
    }

    /// Joins the orphans that wait for `hash`, those that wait for them, and so on.
    pub(super) fn join(
        &mut self,
        hash: EngineHash,
        link: Link,
        keyer: &mut Keyer<'_>,
        shared: Shared<'_>,
    ) -> usize {
        let mut credited = 0;
        if self.orphans.len() == 0 {
            return credited;
        }
        let share = shared.index.budget().ordinary();
        let mut parents = vec![(hash, link)];
        while let Some((parent, link)) = parents.pop() {
            while let Some((hash, orphan)) = self.orphans.take_child(parent, &mut self.own, share) {
                let Some(key) = orphan.key(hash, keyer, link.key) else { continue };
                let lesson = Lesson { hash, key, copies: orphan.copies() };
                match self.learn(lesson, link, shared) {
                    Some(next) => {
                        credited += usize::from(!orphan.copies().is_empty());
                        parents.push((hash, next));
                    }
                    None => self.given_up += 1,
                }
            }
        }
        credited
    }
}
