//! Who waits, and in which order: first by priority, then fair among tenants by the tokens they ask
//! for, then by deadline, then by arrival.
//!
//! Fair means start-time fair queueing: a tenant's virtual time grows by what it gets, the one
//! that is furthest behind comes next, and one that asks for nothing gathers no claim meanwhile.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Tenants whose share is remembered while none of them waits.
const REMEMBERED: usize = 1_024;

/// Whom a share is for: the digest of a name.
pub(crate) type Tenant = u64;

/// What is known of one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Higher comes first.
    pub(crate) priority: i32,
    pub(crate) tenant: Tenant,
    /// When it gives up, on a clock that all waiting share.
    pub(crate) deadline: Duration,
    /// Tokens it asks for.
    pub(crate) cost: u64,
}

/// A place in the queue. It stays the same when its holder tries, fails and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    priority: Reverse<i32>,
    tenant: Tenant,
    deadline: Duration,
    arrival: u64,
}

/// A bounded queue of `T`s.
#[derive(Debug)]
pub(super) struct Queue<T> {
    limit: usize,
    length: usize,
    arrivals: u64,
    /// Highest priority first.
    classes: BTreeMap<Reverse<i32>, Class<T>>,
    /// Those that tried in vain and wait for the next bell, in the order in which they tried.
    aside: Vec<Aside<T>>,
    /// Those that wait for a later one.
    deferred: Vec<Aside<T>>,
}

/// One that tried in vain. It never gave up its place.
#[derive(Debug)]
struct Aside<T> {
    place: Place,
    cost: u64,
    item: T,
}

#[derive(Debug)]
struct Class<T> {
    /// The virtual time at which the last one was served.
    now: u64,
    /// Those with somebody waiting, by their virtual time.
    order: BTreeSet<(u64, Tenant)>,
    tenants: HashMap<Tenant, Share<T>>,
}

#[derive(Debug)]
struct Share<T> {
    at: u64,
    waiting: BTreeMap<(Duration, u64), (T, u64)>,
}

impl<T> Queue<T> {
    /// With room for so many.
    pub(super) fn new(limit: usize) -> Self {
        let (aside, deferred) = (Vec::new(), Vec::new());
        Self { limit, length: 0, arrivals: 0, classes: BTreeMap::new(), aside, deferred }
    }

    /// Lets so many wait from now on; nobody who waits has to go.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn len(&self) -> usize {
        self.length + self.aside.len() + self.deferred.len()
    }

    /// Those that are not [set aside](Self::set_aside).
    pub(super) fn untried(&self) -> usize {
        self.length
    }

    /// Enters a newcomer; `None` where there is no room.
    pub(super) fn enter(&mut self, waiting: Waiting, item: T) -> Option<Place> {
        if self.len() >= self.limit {
            return None;
        }
        self.arrivals += 1;
        let place = Place {
            priority: Reverse(waiting.priority),
            tenant: waiting.tenant,
            deadline: waiting.deadline,
            arrival: self.arrivals,
        };
        self.put(place, waiting.cost, item);
        Some(place)
    }

    /// Puts one back that was [taken](Self::take) and got nothing. There is always room for it: it
    /// never left.
    pub(super) fn put_back(&mut self, place: Place, cost: u64, item: T) {
        if let Some(class) = self.classes.get_mut(&place.priority) {
            class.give_back(place.tenant, cost);
        }
        self.put(place, cost, item);
    }

    /// Like [`put_back`](Self::put_back), but it is not taken before the next
    /// [`all_again`](Self::all_again).
    pub(super) fn set_aside(&mut self, place: Place, cost: u64, item: T) {
        if let Some(class) = self.classes.get_mut(&place.priority) {
            class.give_back(place.tenant, cost);
        }
        self.aside.push(Aside { place, cost, item });
    }

    /// All that were set aside may be taken again: where there is a `first`, no more than so many
    /// of those that tried first, and the others after another round.
    pub(super) fn all_again(&mut self, first: Option<usize>) {
        let tried = self.aside.len();
        let mut again: Vec<Aside<T>> =
            self.aside.drain(..first.map_or(tried, |first| first.min(tried))).collect();
        self.deferred.append(&mut self.aside);
        if first.is_none() {
            again.append(&mut self.deferred);
        }
        again.into_iter().for_each(|Aside { place, cost, item }| self.put(place, cost, item));
    }

    fn put(&mut self, place: Place, cost: u64, item: T) {
        let class = self.classes.entry(place.priority).or_insert_with(Class::new);
        class.put(place, cost, item);
        self.length += 1;
    }

    /// Takes the one whose turn it is.
    pub(super) fn take(&mut self) -> Option<(Place, T)> {
        let (&priority, class) = self.classes.iter_mut().next()?;
        let taken = class.take(priority);
        if class.order.is_empty() {
            self.classes.remove(&priority);
        }
        self.length -= usize::from(taken.is_some());
        taken
    }

    /// Takes one out of its place, if it is still there.
    pub(super) fn remove(&mut self, place: Place) -> Option<T> {
        for list in [&mut self.aside, &mut self.deferred] {
            if let Some(at) = list.iter().position(|aside| aside.place == place) {
                return Some(list.remove(at).item);
            }
        }
        let class = self.classes.get_mut(&place.priority)?;
        let removed = class.remove(place)?;
        if class.order.is_empty() {
            self.classes.remove(&place.priority);
        }
        self.length -= 1;
        Some(removed)
    }
}

impl<T> Class<T> {
    fn new() -> Self {
        Self { now: 0, order: BTreeSet::new(), tenants: HashMap::new() }
    }

    fn put(&mut self, place: Place, cost: u64, item: T) {
        let now = self.now;
        let share = self
            .tenants
            .entry(place.tenant)
            .or_insert_with(|| Share { at: now, waiting: BTreeMap::new() });
        if share.waiting.is_empty() {
            share.at = share.at.max(now);
            self.order.insert((share.at, place.tenant));
        }
        share.waiting.insert((place.deadline, place.arrival), (item, cost));
    }

    fn take(&mut self, priority: Reverse<i32>) -> Option<(Place, T)> {
        let &(at, tenant) = self.order.first()?;
        self.order.remove(&(at, tenant));
        let share = self.tenants.get_mut(&tenant)?;
        let ((deadline, arrival), (item, cost)) = share.waiting.pop_first()?;
        self.now = at;
        share.at = at.saturating_add(cost.max(1));
        if !share.waiting.is_empty() {
            self.order.insert((share.at, tenant));
        }
        self.forget_the_idle();
        Some((Place { priority, tenant, deadline, arrival }, item))
    }

    /// What was charged for one that got nothing is not owed.
    fn give_back(&mut self, tenant: Tenant, cost: u64) {
        let Some(share) = self.tenants.get_mut(&tenant) else { return };
        let was_waiting = self.order.remove(&(share.at, tenant));
        share.at = share.at.saturating_sub(cost.max(1));
        if was_waiting {
            self.order.insert((share.at, tenant));
        }
    }

    fn remove(&mut self, place: Place) -> Option<T> {
        let share = self.tenants.get_mut(&place.tenant)?;
        let (item, _) = share.waiting.remove(&(place.deadline, place.arrival))?;
        if share.waiting.is_empty() {
            self.order.remove(&(share.at, place.tenant));
            self.forget_the_idle();
        }
        Some(item)
    }

    /// Forgets tenants of which nobody waits: those who are not ahead of the others begin at the
    /// present anyway, and of too many nobody is remembered.
    fn forget_the_idle(&mut self) {
        // Not at every turn: it looks at all of them.
        if self.tenants.len() > self.order.len() + REMEMBERED {
            self.tenants.retain(|_, share| !share.waiting.is_empty());
        }
    }
}
