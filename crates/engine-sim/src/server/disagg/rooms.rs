//! Rooms where the two legs of one request meet, each of them once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Numbers of past rooms that are remembered.
const MAX_PAST: usize = 4_096;

/// A prompt that has been computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Ready {
    /// Its tokens.
    pub(super) tokens: usize,
    /// A number made of them: whoever fetches it must have the same prompt.
    pub(super) prompt: u64,
    /// The token after it.
    pub(super) first: u32,
}

/// How far the two have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Phase {
    Open,
    /// The prompt has been computed.
    Ready(Ready),
    /// It is on its way.
    Moving,
    /// It has arrived.
    Done,
    /// One of the two left before.
    Broken,
}

/// One of the two legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Side {
    Prefill,
    Decode,
}

/// Somebody was there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used;

/// Rooms by number. Connections bound their number: each has at most one seat.
#[derive(Clone, Debug, Default)]
pub(super) struct Rooms(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Room>,
    past: HashSet<u64>,
    oldest: VecDeque<u64>,
}

#[derive(Debug)]
struct Room {
    /// For prefill and decode: not yet there, there, gone.
    here: [Option<bool>; 2],
    phase: watch::Sender<Phase>,
}

/// A leg's place in a room; leaving it before the end breaks the room for the other one.
#[derive(Debug)]
pub(in crate::server) struct Seat {
    rooms: Rooms,
    room: u64,
    side: Side,
    phase: watch::Sender<Phase>,
}

impl Rooms {
    /// Takes a leg's place; whoever of the two comes first opens the room.
    pub(super) fn enter(&self, room: u64, side: Side) -> Result<Seat, Used> {
        let table = &mut *self.0.lock();
        if table.past.contains(&room) {
            return Err(Used);
        }
        let entry = table
            .open
            .entry(room)
            .or_insert_with(|| Room { here: [None; 2], phase: watch::Sender::new(Phase::Open) });
        let place = &mut entry.here[side as usize];
        if place.is_some() {
            return Err(Used);
        }
        *place = Some(true);
        Ok(Seat { rooms: self.clone(), room, side, phase: entry.phase.clone() })
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().open.len()
    }

    pub(super) fn clear(&self) {
        let table = std::mem::take(&mut *self.0.lock());
        for room in table.open.values() {
            room.phase.send_replace(Phase::Broken);
        }
    }
}

impl Table {
    fn close(&mut self, room: u64) {
        self.open.remove(&room);
        if self.past.insert(room) {
            self.oldest.push_back(room);
        }
        if self.oldest.len() > MAX_PAST
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.past.remove(&oldest);
        }
    }
}

impl Seat {
    /// Tells the other leg; a broken room stays broken.
    pub(super) fn tell(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let changes = *now != Phase::Broken;
            if changes {
                *now = phase;
            }
            changes
        });
    }

    /// How far the room is now.
    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits for a phase of this kind.
    pub(in crate::server) async fn until(&self, wanted: impl Fn(&Phase) -> bool) -> Phase {
        let mut phase = self.phase.subscribe();
        let seen = phase.wait_for(|phase| wanted(phase)).await;
        // It cannot be closed: this seat has a sender.
        seen.map_or(Phase::Broken, |phase| *phase)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.phase.send_if_modified(|phase| {
            let breaks = *phase != Phase::Done;
            if breaks {
                *phase = Phase::Broken;
            }
            breaks
        });
        let table = &mut *self.rooms.0.lock();
        let Some(room) = table.open.get_mut(&self.room) else { return };
        room.here[self.side as usize] = Some(false);
        if !room.here.contains(&Some(true)) {
            table.close(self.room);
        }
    }
}
