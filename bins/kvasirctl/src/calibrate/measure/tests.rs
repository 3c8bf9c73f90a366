use std::time::Duration;

use super::*;

fn timed(begin: Instant, times: &[(u64, u32)]) -> Timed {
    let marks = times.iter().map(|(ms, n)| (begin + Duration::from_millis(*ms), *n)).collect();
    Timed { sent: begin, marks, cached: None }
}

#[test]
fn prompts_come_in_chunks_of_the_budget() {
    let steps = chunks(250, 100);
    let found: Vec<(f64, f64)> = steps.iter().map(|s| (s.tokens, s.pairs)).collect();
    assert_eq!(found, [(100.0, 5_050.0), (100.0, 15_050.0), (50.0, 11_275.0)]);
    assert_eq!(chunks(100, 100).len(), 1);
}

#[test]
fn only_steps_that_all_answers_share_count() {
    let begin = Instant::now();
    // Both have a second token at 30 ms; one gets two tokens in one piece at 60 ms.
    let one = timed(begin, &[(10, 1), (20, 2), (30, 3), (45, 4), (60, 5), (75, 6)]);
    let two = timed(begin, &[(20, 1), (30, 2), (60, 4), (75, 5), (80, 6)]);
    let step = common(&[one.clone(), two], 100).unwrap();
    assert!((step.seconds - 0.015).abs() < 1e-9, "{}", step.seconds);
    // Tokens 4 to 6 of the first read 103 to 105, tokens 3 to 5 of the second 102 to 104.
    assert!((step.context - 207.0).abs() < 1e-9, "{}", step.context);
    let late = timed(begin, &[(80, 1), (90, 2)]);
    assert!(common(&[one, late], 100).is_none());
}

#[test]
fn a_piece_that_is_seen_late_changes_no_pace() {
    let begin = Instant::now();
    let times: Vec<(u64, u32)> = (0..12).map(|n| (20 * n, n as u32)).collect();
    let mut late = times.clone();
    for (at, ms) in [(0, 55), (6, 135), (11, 300)] {
        late[at].0 = ms;
    }
    for times in [times, late] {
        let pace = pace(&timed(begin, &times).marks).unwrap();
        assert!((pace - 0.02).abs() < 0.001, "{pace}");
    }
}

#[test]
fn the_middle_of_the_readings_is_fitted_or_the_least() {
    let of = |which: Reading, readings: &[f64]| {
        let what = What::FirstToken { prompt: 8 };
        boil(which, what, true, Vec::new(), readings.to_vec()).map(|m| m.observation.seconds)
    };
    assert_eq!(of(Reading::Median, &[9.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(of(Reading::Median, &[9.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(of(Reading::Least, &[9.0, 1.0, 2.0]), Some(1.0));
    assert_eq!(of(Reading::Median, &[]), None);
}

#[test]
fn long_answers_are_thinned_to_marks_evenly_apart() {
    let begin = Instant::now();
    for count in [2, 255, 256, 257, 300, 8_192] {
        let times: Vec<(u64, u32)> = (0..count).map(|n| (20 * u64::from(n), n)).collect();
        let marks = timed(begin, &times).marks;
        let kept: Vec<u32> = thinned(&marks).map(|mark| mark.1).collect();
        assert_eq!(kept.len(), marks.len().min(PACE_MARKS), "{count}");
        assert_eq!((kept.first(), kept.last()), (Some(&0), Some(&(count - 1))), "{count}");
        let gaps: Vec<u32> = kept.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(*least >= 1 && most - least <= 1, "{count}: {least} {most}");
        let pace = pace(&marks).unwrap();
        assert!((pace - 0.02).abs() < 1e-9, "{count}: {pace}");
    }
    assert_eq!(thinned(&[]).count(), 0);
}

#[test]
fn no_more_answers_at_a_time_than_the_engine_runs() {
    assert_eq!(batches(&[4, 12], 128), [4, 12]);
    assert_eq!(batches(&[12, 4, 4], 128), [4, 12]);
    assert_eq!(batches(&[4, 12], 8), [4, 8]);
    assert_eq!(batches(&[4, 12], 2), [2]);
    // One at a time is what single prompts are.
    assert!(batches(&[4, 12], 1).is_empty());
}
