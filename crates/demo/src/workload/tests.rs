use std::collections::HashSet;

use super::*;

fn questions(workload: &Workload, turns: usize) -> Vec<Vec<Turn>> {
    workload.users().map(|mut user| (0..turns).map(|_| user.next_turn()).collect()).collect()
}

#[test]
fn a_seed_is_a_workload() {
    let shape = Shape::for_engines(4);
    let (one, again) = (Workload::new(shape, 7), Workload::new(shape, 7));
    assert_eq!(one.systems(), again.systems());
    assert_eq!(questions(&one, 20), questions(&again, 20));
    let other = Workload::new(shape, 8);
    assert!(one.systems().iter().zip(other.systems()).all(|(a, b)| a != b));
    assert_ne!(questions(&one, 1), questions(&other, 1));
}

/// Pinned, so that a seed written down somewhere keeps its meaning.
#[test]
fn the_words_of_a_seed_stay() {
    let workload = Workload::new(Shape::for_engines(1), 1);
    let turn = workload.users().next().unwrap().next_turn();
    assert!(turn.opens);
    let expected = "How do I prove that the delivery is recorded under the opening time 14, when \
                    the amount is above fifty. How do I prove that the account must be checked \
                    against a reservation 30, within three working days. My number is 38583.";
    assert_eq!(turn.question, expected);
    let expected = "Tenant 0: you answer for a railway company. These rules hold. 1. ";
    assert!(workload.systems()[0].starts_with(expected), "{}", workload.systems()[0]);
}

#[test]
fn tenants_share_their_prompt_and_nothing_else() {
    let workload = Workload::new(Shape::for_engines(4), 3);
    assert_eq!(workload.systems().len(), 8);
    for (tenant, text) in workload.systems().iter().enumerate() {
        let words = text.split(' ').count();
        assert!((1_200..1_460).contains(&words), "{words} words");
        assert!(text.starts_with(&format!("Tenant {tenant}: ")), "{text}");
    }
    let by_tenant = |tenant| workload.users().filter(|user| user.tenant() == tenant).count();
    assert!((0..8).all(|tenant| by_tenant(tenant) == 4));
    // No two users ever ask the same thing.
    let asked = questions(&workload, 30);
    let distinct: HashSet<&str> = asked.iter().flatten().map(|t| t.question.as_str()).collect();
    assert_eq!(distinct.len(), 32 * 30);
}

#[test]
fn conversations_keep_to_the_shape() {
    let shape = Shape { turns: (2, 4), think_ms: (10, 20), ..Shape::for_engines(1) };
    for turns in questions(&Workload::new(shape, 5), 200) {
        let opened: Vec<usize> = (0..200).filter(|at| turns[*at].opens).collect();
        assert_eq!(opened[0], 0);
        let lengths: HashSet<usize> = opened.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(lengths, HashSet::from([2, 3, 4]));
        let thinks = turns.iter().map(|turn| turn.think.as_millis());
        assert!(thinks.into_iter().all(|ms| (10..=20).contains(&ms)));
    }
}

#[test]
fn users_arrive_one_by_one() {
    let workload = Workload::new(Shape::for_engines(2), 0);
    let arrivals: Vec<Duration> = workload.users().map(|user| user.arrives()).collect();
    assert!(arrivals.is_sorted() && arrivals[0].is_zero());
    assert!(arrivals.last().unwrap() < &Duration::from_millis(3_000));
}

#[test]
fn a_conversation_given_up_is_not_gone_on_with() {
    let mut user = Workload::new(Shape::for_engines(1), 0).users().next().unwrap();
    assert!(user.next_turn().opens);
    assert!(!user.next_turn().opens);
    user.start_over();
    assert!(user.next_turn().opens);
}
