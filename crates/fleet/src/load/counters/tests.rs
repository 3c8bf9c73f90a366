use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn work(computed: u64, ends_after: Option<Duration>) -> Work {
    Work { prompt: computed, computed, prefill_ends_after: ends_after, ..Work::default() }
}

#[test]
fn the_prefill_of_a_whole_answer_ends_when_it_was_predicted() {
    let load = LoadCounters::default();
    let start = Instant::now();
    let (whole, streamed) = (work(800, Some(2 * SECOND)), work(50, None));
    let first = load.add(whole, start);
    let second = load.add(streamed, start);
    let seen = |at: Duration| {
        let LoadNow { in_flight, decoding, queued_prefill_tokens, .. } = load.at(start + at);
        (in_flight, decoding, queued_prefill_tokens)
    };
    assert_eq!(seen(SECOND), (2, 0, 850));
    assert_eq!(seen(2 * SECOND), (2, 1, 50), "it generates, though nothing was seen of it");
    let third = load.add(streamed, start + 3 * SECOND);
    assert!(first.alone && !second.alone && !third.alone, "it was predicted, not seen");
    load.answered(whole, &first);
    assert_eq!(seen(3 * SECOND), (3, 1, 100), "it ends once");
    for (work, part) in [(streamed, &second), (streamed, &third)] {
        load.answered(work, part);
    }
    assert_eq!(seen(3 * SECOND), (3, 3, 0));
    (0..3).for_each(|_| load.finished());
    assert_eq!(seen(4 * SECOND), (0, 0, 0));
    assert!(load.add(streamed, start).alone);
}

#[test]
fn an_answer_before_its_time_ends_the_prefill_too() {
    let load = LoadCounters::default();
    let now = Instant::now();
    let whole = work(800, Some(SECOND));
    let part = load.add(whole, now);
    load.answered(whole, &part);
    assert_eq!(load.at(now).queued_prefill_tokens, 0);
    assert_eq!(load.at(now + 2 * SECOND).queued_prefill_tokens, 0);
    // A prediction beyond all clocks is none.
    let never = work(7, Some(Duration::MAX));
    let part = load.add(never, now);
    assert_eq!(load.at(now + 1000 * SECOND).queued_prefill_tokens, 7);
    load.answered(never, &part);
    assert_eq!(load.at(now).queued_prefill_tokens, 0);
    assert!(load.hand.lock().due.is_empty());
}

struct Request {
    work: Work,
    part: Part,
    ends: Option<Instant>,
    answered: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send { tokens: u64, ends_after_ms: Option<u64> },
    Answer(usize),
    Finish(usize),
    Wait { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0_u64..1_000, proptest::option::of(0_u64..500))
            .prop_map(|(tokens, ends_after_ms)| Step::Send { tokens, ends_after_ms }),
        any::<usize>().prop_map(Step::Answer),
        any::<usize>().prop_map(Step::Finish),
        (0_u64..300).prop_map(|ms| Step::Wait { ms }),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn they_are_what_a_list_of_requests_says(steps in steps()) {
        let load = LoadCounters::default();
        let mut now = Instant::now();
        let mut live: Vec<Request> = Vec::new();
        let answer = |request: &mut Request| {
            if !std::mem::replace(&mut request.answered, true) {
                load.answered(request.work, &request.part);
            }
        };
        for step in steps {
            match step {
                Step::Send { tokens, ends_after_ms } => {
                    let after = ends_after_ms.map(Duration::from_millis);
                    let work = work(tokens, after);
                    let part = load.add(work, now);
                    let unanswered: u64 =
                        live.iter().filter(|r| !r.answered).map(|r| r.work.computed).sum();
                    prop_assert_eq!(part.alone, unanswered == 0);
                    let ends = after.map(|after| now + after);
                    live.push(Request { work, part, ends, answered: false });
                }
                Step::Answer(which) if !live.is_empty() => {
                    let which = which % live.len();
                    answer(&mut live[which]);
                }
                Step::Finish(which) if !live.is_empty() => {
                    let mut request = live.swap_remove(which % live.len());
                    answer(&mut request);
                    load.finished();
                }
                Step::Answer(_) | Step::Finish(_) => {}
                Step::Wait { ms } => now += Duration::from_millis(ms),
            }
            let prefills: Vec<u64> = live
                .iter()
                .filter(|r| !r.answered && r.ends.is_none_or(|ends| ends > now))
                .map(|r| r.work.computed)
                .collect();
            let seen = load.at(now);
            prop_assert_eq!(seen.in_flight as usize, live.len());
            prop_assert_eq!(seen.queued_prefill_tokens, prefills.iter().sum::<u64>());
            prop_assert_eq!(seen.decoding as usize, live.len() - prefills.len());
            let due = load.hand.lock().due.len();
            prop_assert!(due <= live.len());
        }
    }
}
