use std::cell::Cell;
use std::rc::Rc;

use tokio::task::LocalSet;

use super::waiter::MAX_OVERTAKEN;
use super::*;

const SPEC: QueueSpec = QueueSpec { places: 4, max_wait: Duration::from_millis(400) };

/// Room that is counted, and an order in which it was taken.
#[derive(Clone)]
struct Room {
    admission: Rc<Admission>,
    free: Rc<Cell<u32>>,
}

impl Room {
    fn of(spec: QueueSpec, free: u32) -> Self {
        Self { admission: Rc::new(Admission::new(spec)), free: Rc::new(Cell::new(free)) }
    }

    fn take(&self) -> Result<(), NoRoom> {
        let left = self.free.get().checked_sub(1).ok_or(NoRoom::Full)?;
        self.free.set(left);
        Ok(())
    }

    async fn enter(&self, asker: Asker) -> Result<(), TurnedAway> {
        self.admission.admit(asker, || self.take()).await.result
    }

    fn leave(&self, places: u32) {
        self.free.set(self.free.get() + places);
        self.admission.ring();
    }
}

fn asker(priority: i32, tenant: u64) -> Asker {
    Asker { priority, tenant, cost: 10, ..Asker::default() }
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn with_room_nobody_waits() {
    run(async {
        let room = Room::of(QueueSpec { places: 0, ..SPEC }, 2);
        room.enter(asker(0, 0)).await.unwrap();
        room.enter(asker(0, 0)).await.unwrap();
        let refused = room.enter(asker(0, 0)).await.unwrap_err();
        assert_eq!(refused, TurnedAway::Overloaded { retry_after: Duration::from_secs(1) });
        assert_eq!(room.admission.waiting(), 0);
        assert_eq!(room.admission.tally(), Tally { overloaded: 1, ..Tally::default() });
    });
}

#[test]
fn who_waits_is_served_in_order_and_newcomers_do_not_push_in() {
    run(async {
        let room = Room::of(SPEC, 0);
        let served = Rc::new(std::cell::RefCell::new(Vec::new()));
        let enter = |name: &'static str, priority| {
            let (room, served) = (room.clone(), Rc::clone(&served));
            tokio::task::spawn_local(async move {
                room.enter(asker(priority, 0)).await.unwrap();
                served.borrow_mut().push(name);
            })
        };
        let tasks = [enter("first", 0), enter("second", 0), enter("urgent", 1)];
        settle().await;
        assert_eq!(room.admission.waiting(), 3);
        // Room comes, and a newcomer before anybody could take it.
        room.leave(1);
        let newcomer = enter("newcomer", 0);
        settle().await;
        assert_eq!(*served.borrow(), ["urgent"]);
        // Room for several at one bell.
        room.leave(3);
        settle().await;
        assert_eq!(*served.borrow(), ["urgent", "first", "second", "newcomer"]);
        for task in tasks.into_iter().chain([newcomer]) {
            task.await.unwrap();
        }
        assert_eq!((room.admission.waiting(), room.admission.tally().served), (0, 4));
    });
}

#[test]
fn patience_ends() {
    run(async {
        let room = Room::of(SPEC, 0);
        let began = Instant::now();
        let refused = room.enter(asker(0, 0)).await.unwrap_err();
        assert!(matches!(refused, TurnedAway::WaitedTooLong { .. }), "{refused:?}");
        assert!(began.elapsed() >= SPEC.max_wait);
        let hurried = Asker { patience: Some(Duration::from_millis(20)), ..asker(0, 0) };
        let began = Instant::now();
        assert!(room.enter(hurried).await.is_err());
        assert!(began.elapsed() < SPEC.max_wait);
        // Where nobody is there, it is waited for as long as is said, and not at all otherwise.
        for hold in [Duration::ZERO, Duration::from_millis(50)] {
            let held = Asker { hold, ..asker(0, 0) };
            let began = Instant::now();
            let nobody = room.admission.admit(held, || Err::<(), _>(NoRoom::Nobody)).await;
            assert_eq!(nobody.result, Err(TurnedAway::Nobody));
            assert_eq!(nobody.waited.is_some(), !hold.is_zero());
            assert!(began.elapsed() >= hold && began.elapsed() < SPEC.max_wait);
        }
        assert_eq!(room.admission.waiting(), 0);
    });
}

#[test]
fn one_who_leaves_when_called_passes_the_room_on() {
    run(async {
        let room = Room::of(SPEC, 0);
        let enter =
            |room: Room| tokio::task::spawn_local(async move { room.enter(asker(0, 0)).await });
        let first = enter(room.clone());
        settle().await;
        let second = enter(room.clone());
        settle().await;
        // Called and gone in one step.
        room.leave(1);
        first.abort();
        settle().await;
        assert!(second.await.unwrap().is_ok());
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(room.admission.waiting(), 0);
        assert_eq!(room.admission.tally().left, 1);
    });
}

#[test]
fn room_that_the_first_cannot_use_is_passed_on() {
    run(async {
        let room = Room::of(SPEC, 0);
        let picky = {
            let admission = Rc::clone(&room.admission);
            tokio::task::spawn_local(async move {
                admission.admit(asker(5, 0), || Err::<(), _>(NoRoom::Full)).await.result
            })
        };
        settle().await;
        let other = {
            let room = room.clone();
            tokio::task::spawn_local(async move { room.enter(asker(0, 0)).await })
        };
        settle().await;
        room.leave(1);
        settle().await;
        assert!(other.is_finished() && other.await.unwrap().is_ok());
        assert!(picky.await.unwrap().is_err());
    });
}

/// Gives its room back, however it ends.
struct Guest(Room);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.leave(1);
    }
}

#[test]
fn room_is_never_lost_whoever_leaves_when() {
    run(async {
        let spec = QueueSpec { places: 64, max_wait: Duration::from_secs(20) };
        let room = Room::of(spec, 3);
        let mut seed = 7_u64;
        let mut random = move |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        let mut tasks = Vec::new();
        for _ in 0..3_000 {
            let (tenant, priority, works) = (random(3), random(2) as i32, random(4));
            let room = room.clone();
            tasks.push(tokio::task::spawn_local(async move {
                let guest = room.enter(asker(priority, tenant)).await.map(|()| Guest(room));
                for _ in 0..works {
                    tokio::task::yield_now().await;
                }
                guest.is_ok()
            }));
            if random(4) == 0 {
                let place = random(tasks.len() as u64) as usize;
                tasks[place].abort();
            }
            if random(3) == 0 {
                tokio::task::yield_now().await;
            }
        }
        let mut served = 0;
        for task in tasks {
            served += u32::from(task.await.is_ok_and(|served| served));
        }
        assert_eq!((room.admission.waiting(), room.free.get()), (0, 3));
        assert!(served > 500, "{served}");
    });
}

#[test]
fn one_who_was_let_in_before_goes_before_all() {
    run(async {
        let room = Room::of(SPEC, 0);
        let served = Rc::new(std::cell::RefCell::new(Vec::new()));
        let enter = |name: &'static str, asker: Asker| {
            let (room, served) = (room.clone(), Rc::clone(&served));
            tokio::task::spawn_local(async move {
                room.enter(asker).await.unwrap();
                served.borrow_mut().push(name);
            })
        };
        enter("urgent", asker(9, 0));
        settle().await;
        enter("again", Asker { goes_ahead: true, ..asker(-9, 0) });
        settle().await;
        room.leave(2);
        settle().await;
        assert_eq!(*served.borrow(), ["again", "urgent"]);
    });
}

#[test]
fn one_who_comes_while_the_last_of_the_queue_leaves_is_not_forgotten() {
    run(async {
        let room = Room::of(SPEC, 0);
        let first = {
            let room = room.clone();
            tokio::task::spawn_local(async move { room.enter(asker(0, 0)).await })
        };
        settle().await;
        // Called, and gone before it could try; nobody else was there to hear of it.
        room.leave(1);
        first.abort();
        let second = {
            let room = room.clone();
            tokio::task::spawn_local(async move { room.enter(asker(0, 0)).await })
        };
        settle().await;
        assert!(second.is_finished(), "there is room, and no bell will come");
        second.await.unwrap().unwrap();
        assert!(first.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn what_asks_for_much_is_overtaken_for_so_long() {
    run(async {
        let spec = QueueSpec { places: 500, max_wait: Duration::from_secs(20) };
        let room = Room::of(spec, 0);
        let big = {
            let room = room.clone();
            tokio::task::spawn_local(async move {
                let all = || {
                    let free = room.free.get();
                    let left = free.checked_sub(3).ok_or(NoRoom::Full)?;
                    room.free.set(left);
                    Ok(())
                };
                room.admission.admit(asker(1, 0), all).await.result
            })
        };
        settle().await;
        let served = Rc::new(Cell::new(0));
        let small = |count: u64| {
            for _ in 0..count {
                let (room, served) = (room.clone(), Rc::clone(&served));
                tokio::task::spawn_local(async move {
                    room.enter(asker(0, 0)).await.unwrap();
                    served.set(served.get() + 1);
                });
            }
        };
        small(MAX_OVERTAKEN + 10);
        settle().await;
        for _ in 0..MAX_OVERTAKEN {
            room.leave(1);
            settle().await;
        }
        assert!(!big.is_finished());
        assert_eq!(served.get(), MAX_OVERTAKEN);
        for _ in 0..3 {
            assert!(!big.is_finished());
            room.leave(1);
            settle().await;
        }
        assert!(big.is_finished(), "it is passed over for ever");
        assert_eq!(served.get(), MAX_OVERTAKEN);
        room.leave(1);
        settle().await;
        assert_eq!(served.get(), MAX_OVERTAKEN + 1);
    });
}

/// Under threads: a bell that rings while somebody is on the way into the queue is heard.
#[test]
fn no_bell_is_missed_under_threads() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let spec = QueueSpec { places: 1_000, max_wait: Duration::from_secs(30) };
    let shared = Arc::new((Admission::new(spec), AtomicI64::new(2), AtomicI64::new(0)));
    let began = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|tenant| {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let (admission, free, most) = &*shared;
                    for _ in 0..2_000 {
                        let take = || {
                            let less = |free: i64| (free > 0).then(|| free - 1);
                            free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                                .map_err(|_| NoRoom::Full)
                        };
                        let left = admission.admit(asker(0, tenant), take).await.result.unwrap();
                        most.fetch_max(2 - left + 1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        free.fetch_add(1, Ordering::SeqCst);
                        admission.ring();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(began.elapsed() < spec.max_wait, "somebody slept through a bell");
    assert_eq!((shared.0.waiting(), shared.1.load(Ordering::SeqCst)), (0, 2));
    assert!(shared.2.load(Ordering::SeqCst) <= 2);
}

#[test]
fn room_that_comes_while_the_first_tries_in_vain_is_for_the_first() {
    run(async {
        let room = Room::of(SPEC, 0);
        let served = Rc::new(std::cell::RefCell::new(Vec::new()));
        // A bell that means nothing has it try in vain, and room comes just after it has looked.
        let too_late = Rc::new(Cell::new(false));
        let first = {
            let (room, served) = (room.clone(), Rc::clone(&served));
            let too_late = Rc::clone(&too_late);
            tokio::task::spawn_local(async move {
                let attempt = || {
                    let seen = room.take();
                    if too_late.take() {
                        assert!(seen.is_err());
                        room.leave(1);
                    }
                    seen.map_err(|_| NoRoom::FullForAll)
                };
                room.admission.admit(asker(9, 0), attempt).await.result.unwrap();
                served.borrow_mut().push("first");
            })
        };
        settle().await;
        let second = {
            let (room, served) = (room.clone(), Rc::clone(&served));
            tokio::task::spawn_local(async move {
                room.enter(asker(0, 0)).await.unwrap();
                served.borrow_mut().push("second");
            })
        };
        settle().await;
        too_late.set(true);
        room.admission.ring();
        settle().await;
        assert_eq!(*served.borrow(), ["first"]);
        room.leave(1);
        first.await.unwrap();
        second.await.unwrap();
    });
}

/// Those at the head can do nothing with the room there is: everybody behind is tried once, room is
/// kept for none of them, and who comes later takes what they leave.
#[test]
fn room_that_many_cannot_use_finds_the_one_who_can() {
    for (picky, why) in [(2, NoRoom::Full), (70, NoRoom::Full), (2, NoRoom::FullForIt)] {
        run(async {
            let spec = QueueSpec { places: 200, max_wait: Duration::from_secs(20) };
            let room = Room::of(spec, 0);
            let attempts = Rc::new(Cell::new(0));
            for _ in 0..picky {
                let (admission, attempts) = (Rc::clone(&room.admission), Rc::clone(&attempts));
                tokio::task::spawn_local(async move {
                    let fails = || {
                        attempts.set(attempts.get() + 1);
                        Err::<(), _>(why)
                    };
                    admission.admit(asker(5, 0), fails).await.result
                });
            }
            let served = Rc::new(Cell::new(0));
            let plain = || {
                let (room, served) = (room.clone(), Rc::clone(&served));
                tokio::task::spawn_local(async move {
                    room.enter(asker(0, 0)).await.unwrap();
                    served.set(served.get() + 1);
                });
            };
            for _ in 0..20 {
                settle().await;
            }
            plain();
            for _ in 0..20 {
                settle().await;
            }
            let before = attempts.get();
            // So many cannot all be tried at one bell.
            let bells = if picky > MAX_PASSES { 2 } else { 1 };
            room.free.set(1);
            for _ in 0..bells {
                room.admission.ring();
                for _ in 0..20 {
                    settle().await;
                }
            }
            assert_eq!(served.get(), 1, "{picky} {why:?}");
            let most = if picky > MAX_PASSES { 2 * (MAX_PASSES + 1) } else { picky };
            assert!(attempts.get() - before <= most, "tried again at the same bell");
            // All that wait have failed at this bell: room is found without another.
            room.free.set(1);
            plain();
            for _ in 0..20 {
                settle().await;
            }
            assert_eq!(served.get(), 2, "a newcomer, behind {picky} {why:?}");
            if why == NoRoom::FullForIt {
                for overtaken in 0..2 * MAX_OVERTAKEN {
                    plain();
                    room.leave(1);
                    settle().await;
                    assert_eq!(served.get(), 3 + overtaken, "kept for one that cannot use it");
                }
            }
        });
    }
}

#[test]
fn room_that_was_kept_for_one_who_leaves_is_for_the_next() {
    run(async {
        let spec = QueueSpec { places: 500, max_wait: Duration::from_secs(20) };
        let room = Room::of(spec, 0);
        let admission = Rc::clone(&room.admission);
        let big = tokio::task::spawn_local(async move {
            admission.admit(asker(1, 0), || Err::<(), _>(NoRoom::Full)).await.result
        });
        settle().await;
        let served = Rc::new(Cell::new(0));
        for _ in 0..=MAX_OVERTAKEN {
            let (room, served) = (room.clone(), Rc::clone(&served));
            tokio::task::spawn_local(async move {
                room.enter(asker(0, 0)).await.unwrap();
                served.set(served.get() + 1);
            });
        }
        settle().await;
        for _ in 0..=MAX_OVERTAKEN {
            room.leave(1);
            settle().await;
        }
        assert_eq!((served.get(), room.free.get()), (MAX_OVERTAKEN, 1));
        // No bell rings.
        big.abort();
        settle().await;
        assert_eq!((served.get(), room.free.get()), (MAX_OVERTAKEN + 1, 0));
    });
}
