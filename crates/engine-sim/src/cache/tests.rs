//! One test for each rule of the pool.

mod audit;

use super::*;

const OLD: Version = Version::release(0, 20, 2);
const NEW: Version = Version::release(0, 32, 0);

fn hash(number: u64) -> BlockHash {
    BlockHash::from(number)
}

/// A table of `count` blocks that hold `first`, `first + 1`, ...
fn fill(pool: &mut BlockPool, first: u64, count: usize) -> Vec<BlockId> {
    let mut table = Vec::new();
    pool.allocate(count, &mut table);
    table.iter().zip(first..).for_each(|(&block, number)| pool.insert(hash(number), block));
    table
}

/// What the next `count` allocations evict, by number.
fn evicted_by(pool: &mut BlockPool, count: usize) -> Vec<u64> {
    pool.take_events();
    pool.allocate(count, &mut Vec::new());
    let number = |event: Event| match event {
        Event::Removed(removed) => removed.block_hashes[0].to_u64(),
        other => panic!("{other:?}"),
    };
    pool.take_events().into_iter().map(number).collect()
}

#[test]
fn the_null_block_is_never_used() {
    let mut pool = BlockPool::new(4, NEW, true);
    assert_eq!((pool.usable_blocks(), pool.free_blocks()), (3, 3));
    let mut table = Vec::new();
    pool.allocate(3, &mut table);
    assert_eq!(table, [1, 2, 3]);
    pool.audit([table.as_slice()].into_iter());
}

#[test]
fn tails_are_evicted_before_heads_and_old_requests_before_new_ones() {
    for version in [OLD, NEW] {
        let mut pool = BlockPool::new(7, version, true);
        let first = fill(&mut pool, 10, 3);
        let second = fill(&mut pool, 20, 3);
        pool.release(&first);
        pool.release(&second);
        pool.audit(std::iter::empty());
        assert_eq!(evicted_by(&mut pool, 6), [12, 11, 10, 22, 21, 20]);
    }
}

#[test]
fn a_hit_takes_the_block_out_of_the_queue_and_back_to_its_end() {
    let mut pool = BlockPool::new(5, NEW, true);
    let first = fill(&mut pool, 10, 2);
    let second = fill(&mut pool, 20, 2);
    pool.release(&first);
    pool.release(&second);
    let hit = pool.lookup(&hash(10)).unwrap();
    assert!(pool.is_free(hit));
    pool.touch(hit);
    assert!(!pool.is_free(hit));
    assert_eq!(pool.free_blocks(), 3);
    pool.touch(hit);
    pool.release(&[hit]);
    assert!(!pool.is_free(hit), "one request still uses it");
    pool.release(&[hit]);
    assert_eq!(evicted_by(&mut pool, 4), [11, 21, 20, 10]);
}

#[test]
fn blocks_without_content_are_reused_first_from_0_23_on() {
    for (version, order) in
        [(Version::release(0, 22, 1), [2, 1, 4, 3]), (Version::release(0, 23, 0), [4, 3, 2, 1])]
    {
        let mut pool = BlockPool::new(5, version, true);
        let cached = fill(&mut pool, 10, 2);
        let mut empty = Vec::new();
        pool.allocate(2, &mut empty);
        assert_eq!((cached.as_slice(), empty.as_slice()), ([1, 2].as_slice(), [3, 4].as_slice()));
        pool.release(&cached);
        pool.release(&empty);
        pool.audit(std::iter::empty());
        assert_eq!(pool.free.walk().0, order, "{version}");
    }
}

#[test]
fn a_block_that_is_still_used_stays_out_of_the_queue() {
    let mut pool = BlockPool::new(4, NEW, true);
    let mut table = fill(&mut pool, 10, 1);
    pool.allocate(2, &mut table);
    pool.touch(table[0]);
    pool.release(&table);
    assert_eq!(pool.free.walk().0, [table[2], table[1]]);
    pool.audit([&table[..1]].into_iter());
}

#[test]
fn copies_of_one_content_are_kept_apart() {
    let mut pool = BlockPool::new(4, NEW, true);
    let tables: Vec<_> = (0..3).map(|_| fill(&mut pool, 7, 1)).collect();
    assert_eq!(pool.contents().collect::<Vec<_>>(), [(hash(7), 3)]);
    assert_eq!(pool.lookup(&hash(7)), Some(tables[0][0]), "the oldest is hit");
    // The middle one goes first, then the oldest: the newest is left.
    pool.release(&tables[1]);
    assert_eq!(evicted_by(&mut pool, 1), [7]);
    assert_eq!(pool.lookup(&hash(7)), Some(tables[0][0]));
    pool.release(&tables[0]);
    assert_eq!(evicted_by(&mut pool, 1), [7]);
    assert_eq!(pool.lookup(&hash(7)), Some(tables[2][0]));
    assert_eq!(pool.contents().collect::<Vec<_>>(), [(hash(7), 1)]);
    pool.release(&tables[2]);
    assert_eq!(evicted_by(&mut pool, 1), [7]);
    assert_eq!(pool.lookup(&hash(7)), None);
}

#[test]
fn an_evicted_block_can_be_cached_again() {
    let mut pool = BlockPool::new(2, NEW, true);
    let table = fill(&mut pool, 1, 1);
    pool.release(&table);
    let table = fill(&mut pool, 2, 1);
    assert_eq!((pool.lookup(&hash(1)), pool.lookup(&hash(2))), (None, Some(1)));
    pool.audit([table.as_slice()].into_iter());
}

#[test]
fn only_an_unused_pool_can_be_reset() {
    let mut pool = BlockPool::new(4, NEW, true);
    let table = fill(&mut pool, 1, 2);
    assert!(!pool.reset());
    assert_eq!(pool.contents().count(), 2);
    pool.release(&table);
    assert!(pool.reset());
    assert_eq!(pool.contents().count(), 0);
    assert_eq!(pool.take_events(), [Event::Cleared]);
    assert!(evicted_by(&mut pool, 3).is_empty(), "nothing left to evict");
}

#[test]
fn clears_that_nobody_publishes_do_not_pile_up() {
    let mut pool = BlockPool::new(2, NEW, true);
    (0..5_000).for_each(|_| assert!(pool.reset()));
    assert_eq!(pool.take_events().len(), MAX_PENDING_CLEARS);
}

#[test]
fn no_events_where_none_are_wanted() {
    let mut pool = BlockPool::new(2, NEW, false);
    let table = fill(&mut pool, 1, 1);
    pool.release(&table);
    fill(&mut pool, 2, 1);
    assert_eq!(pool.take_events(), []);
}
