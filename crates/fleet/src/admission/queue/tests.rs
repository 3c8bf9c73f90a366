use super::*;

fn waiting(priority: i32, tenant: Tenant, deadline_ms: u64, cost: u64) -> Waiting {
    Waiting { priority, tenant, deadline: Duration::from_millis(deadline_ms), cost }
}

fn order<T>(queue: &mut Queue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.take().map(|(_, item)| item)).collect()
}

#[test]
fn priority_then_deadline_then_arrival() {
    let mut queue = Queue::new(9);
    for (name, one) in [
        ("late", waiting(0, 1, 90, 5)),
        ("soon", waiting(0, 1, 10, 5)),
        ("first", waiting(0, 1, 50, 5)),
        ("second", waiting(0, 1, 50, 5)),
        ("urgent", waiting(3, 1, 99, 5)),
        ("idle", waiting(-1, 1, 1, 5)),
    ] {
        queue.enter(one, name).unwrap();
    }
    assert_eq!(order(&mut queue), ["urgent", "soon", "first", "second", "late", "idle"]);
    assert_eq!(queue.len(), 0);
}

#[test]
fn tenants_get_equal_shares_of_tokens() {
    let mut queue = Queue::new(100);
    // One asks for much and often, the other for a little.
    for _ in 0..40 {
        queue.enter(waiting(0, 1, 10, 100), 1).unwrap();
    }
    for _ in 0..40 {
        queue.enter(waiting(0, 2, 10, 50), 2).unwrap();
    }
    let first: Vec<u64> = (0..30).map(|_| queue.take().unwrap().1).collect();
    let tokens = |tenant, each| first.iter().filter(|t| **t == tenant).count() as i64 * each;
    assert!((tokens(1, 100) - tokens(2, 50)).abs() <= 100, "{first:?}");
}

#[test]
fn who_was_away_has_no_claim_on_the_past() {
    let mut queue = Queue::new(100);
    for _ in 0..20 {
        queue.enter(waiting(0, 1, 10, 100), 1).unwrap();
    }
    for _ in 0..10 {
        queue.take().unwrap();
    }
    for _ in 0..10 {
        queue.enter(waiting(0, 2, 10, 100), 2).unwrap();
    }
    let next: Vec<u64> = (0..6).map(|_| queue.take().unwrap().1).collect();
    assert_eq!(next.iter().filter(|tenant| **tenant == 1).count(), 3, "{next:?}");
}

#[test]
fn one_who_tried_in_vain_keeps_place_and_share() {
    let mut queue = Queue::new(3);
    queue.enter(waiting(0, 1, 10, 100), "a").unwrap();
    queue.enter(waiting(0, 1, 20, 100), "b").unwrap();
    queue.enter(waiting(0, 2, 30, 100), "c").unwrap();
    assert!(queue.enter(waiting(9, 3, 1, 1), "no room").is_none());
    for _ in 0..5 {
        let (place, item) = queue.take().unwrap();
        assert_eq!(item, "a");
        queue.put_back(place, 100, item);
    }
    assert_eq!(order(&mut queue), ["a", "c", "b"]);
}

#[test]
fn who_leaves_is_gone_once() {
    let mut queue = Queue::new(3);
    let a = queue.enter(waiting(0, 1, 10, 1), "a").unwrap();
    queue.enter(waiting(0, 2, 10, 1), "b").unwrap();
    assert_eq!(queue.remove(a), Some("a"));
    assert_eq!(queue.remove(a), None);
    assert_eq!((queue.len(), order(&mut queue)), (1, vec!["b"]));
}

#[test]
fn tenants_that_come_once_are_forgotten() {
    let mut queue = Queue::new(2);
    queue.enter(waiting(0, 0, 1, 10), 0).unwrap();
    for tenant in 1..10_000 {
        queue.enter(waiting(0, tenant, tenant, 10), tenant).unwrap();
        queue.take().unwrap();
    }
    let class = queue.classes.values().next().unwrap();
    assert!(class.tenants.len() <= REMEMBERED + 2, "{}", class.tenants.len());
}
