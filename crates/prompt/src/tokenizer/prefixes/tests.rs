use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[test]
fn an_entry_is_found_behind_its_parent_only() {
    let cache = PrefixCache::new(1 << 20);
    let root = cache.root(None).unwrap();
    let a = cache.insert(root, "a", &[1]).unwrap();
    let b = cache.insert(a.id, "b", &[2, 3]).unwrap();
    assert_eq!(*cache.get(root, "a").unwrap().ids, [1]);
    assert_eq!(*cache.get(a.id, "b").unwrap().ids, [2, 3]);
    assert!(cache.get(root, "b").is_none());
    assert!(cache.get(b.id, "a").is_none());
    // Made twice: the first stays, and with it what hangs on it.
    assert_eq!(cache.insert(root, "a", &[1]).unwrap().id, a.id);
    assert_eq!(cache.stats().entries, 2);
}

#[test]
fn salts_are_apart() {
    let cache = PrefixCache::new(1 << 20);
    let roots = [None, Some("x"), Some("y")].map(|salt| cache.root(salt).unwrap());
    assert_eq!(cache.root(Some("")), Some(roots[0]));
    assert_eq!(cache.root(Some("x")), Some(roots[1]));
    cache.insert(roots[1], "text", &[1]).unwrap();
    assert!(cache.get(roots[0], "text").is_none());
    assert!(cache.get(roots[2], "text").is_none());
    assert!(cache.get(roots[1], "text").is_some());
    // A text is no salt.
    cache.insert(roots[0], "z", &[1]).unwrap();
    assert!(cache.get(NodeId(1), "z").is_none());
}

#[test]
fn what_is_forgotten_is_not_found() {
    let cache = PrefixCache::new(1 << 20);
    let roots = |cache: &PrefixCache| [None, Some("x")].map(|salt| cache.root(salt).unwrap());
    let before = roots(&cache);
    for root in before {
        cache.insert(root, "text", &[1]).unwrap();
    }
    cache.forget();
    let after = roots(&cache);
    assert!(after.iter().all(|root| cache.get(*root, "text").is_none()));
    assert!(before.iter().all(|root| !after.contains(root)));
}

#[test]
fn what_does_not_fit_is_not_kept() {
    let cache = PrefixCache::new(SHARDS * 1000);
    let root = cache.root(None).unwrap();
    assert!(cache.insert(root, &"x".repeat(500), &[]).is_none());
    assert!(cache.insert(root, "x", &[0; 100]).is_none());
    assert!(cache.insert(root, "x", &[0; 10]).is_some());
    assert!(PrefixCache::new(0).insert(NodeId(0), "x", &[]).is_none());
    assert!(PrefixCache::new(0).root(Some("salt")).is_none());
}

#[test]
fn a_hash_alone_finds_nothing() {
    let cache = PrefixCache::new(1 << 20);
    let key = cache.key(NodeId(0), "mine");
    let other = Arc::new(Node {
        id: NodeId(7),
        parent: NodeId(0),
        text: "other".into(),
        ids: Box::new([9]),
    });
    cache.shard(key).lock().insert(key, other, 300, 1 << 16);
    assert!(cache.get(NodeId(0), "mine").is_none());
    // The newer one takes the place.
    cache.insert(NodeId(0), "mine", &[1]).unwrap();
    assert_eq!(*cache.get(NodeId(0), "mine").unwrap().ids, [1]);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.bytes), (1, Node::cost("mine", &[1])));
}

#[test]
fn what_is_used_outlives_what_is_not() {
    let cache = PrefixCache::new(SHARDS * 20 * 300);
    let root = cache.root(None).unwrap();
    cache.insert(root, "hot", &[1]).unwrap();
    for n in 0..10_000 {
        assert!(cache.get(root, "hot").is_some(), "after {n}");
        cache.insert(root, &format!("cold {n}"), &[n]).unwrap();
    }
    let stats = cache.stats();
    assert!(stats.evictions > 5000 && stats.bytes <= stats.budget, "{stats:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a map that forgets nothing: what is found is what was put, and bytes are counted.
    #[test]
    fn equal_to_a_map_where_it_finds_something(
        steps in prop::collection::vec((0..6_u64, "[ab]{0,3}", 0..40_usize, any::<bool>()), 0..300),
    ) {
        let cache = PrefixCache::new(SHARDS * 3 * 300);
        let mut naive: HashMap<(u64, String), Vec<u32>> = HashMap::new();
        for (parent, text, len, put) in steps {
            let at = NodeId(parent);
            let ids: Vec<u32> = (0..len as u32).map(|i| i + parent as u32).collect();
            if put {
                let ids = naive.entry((parent, text.clone())).or_insert(ids);
                cache.insert(at, &text, ids).unwrap();
            } else if let Some(found) = cache.get(at, &text) {
                prop_assert_eq!(Some(found.ids.to_vec()), naive.get(&(parent, text)).cloned());
            }
            let mut bytes = 0;
            for shard in &cache.shards {
                let shard = shard.lock();
                prop_assert_eq!(shard.ring.len(), shard.slots.len());
                let costs = shard.slots.values().map(|s| Node::cost(&s.node.text, &s.node.ids));
                bytes += costs.sum::<usize>();
                prop_assert!(shard.bytes <= cache.shard_budget);
            }
            prop_assert_eq!(bytes, cache.stats().bytes);
        }
    }
}
