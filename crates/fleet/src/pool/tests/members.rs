//! Which endpoints a pool takes for its own, while their engines say what they have.

use std::thread;

use super::*;
use crate::seat::Seat;

#[test]
fn what_two_engines_say_at_one_moment_is_known_of_both() {
    for _ in 0..200 {
        let scene = Scene::addressed(2, RankAddressing::Header);
        let seat = Seat::new(Arc::new(scene.pool(PolicyKind::RoundRobin)));
        thread::scope(|scope| {
            for engine in &scene.engines {
                scope.spawn(|| {
                    assert!(engine.learn(&[0, 1, 2]));
                    seat.refresh();
                });
            }
        });
        let ranks: Vec<_> = seat.pool().members().iter().map(|member| member.rank()).collect();
        assert_eq!(ranks, [0, 1, 2, 0, 1, 2].map(Some));
    }
}
