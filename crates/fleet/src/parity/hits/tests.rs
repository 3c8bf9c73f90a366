use proptest::prelude::*;

use super::*;

const BLOCK: u32 = 16;
const FIRST: Stamp = Stamp { life: 1, picture: 1, breaks: 1 };

/// An endpoint's parity, in a time of its own.
struct Scene {
    parity: HitParity,
    at: Instant,
    stamp: Stamp,
    changes: Vec<bool>,
}

fn report(prompt: u64, cached: Option<u64>) -> Report<'static> {
    Report {
        api: "completions",
        streamed: false,
        request_id: Some("ask"),
        clean: true,
        prompt_tokens: Some(prompt),
        cached_tokens: cached,
        evicted: 0,
    }
}

impl Scene {
    fn new() -> Self {
        Self { parity: HitParity::new(), at: Instant::now(), stamp: FIRST, changes: Vec::new() }
    }

    fn now(&self) -> Now {
        Now { at: self.at, stamp: self.stamp }
    }

    fn predicted(&self, held: u32) -> Prediction {
        let drop = self.parity.dropped_blocks(self.stamp) * BLOCK;
        let tokens = held.saturating_sub(drop);
        let (stamp, removed) = (self.stamp, 0);
        Prediction { tokens, held, block: BLOCK, prompt: 1000, on_device: true, stamp, removed }
    }

    fn take(&mut self, change: Option<Change>) {
        self.changes.extend(change.map(|change| change.suspected));
    }

    /// An answer to a prompt of which so many tokens were known, and so many hit.
    fn answer(&mut self, held: u32, reported: u64) {
        let prediction = self.predicted(held);
        self.answer_to(prediction, reported);
    }

    fn answer_to(&mut self, prediction: Prediction, reported: u64) {
        let report = report(1000, Some(reported));
        let change = self.parity.judge(Ok(prediction), &report, self.now());
        self.take(change);
    }

    /// Time passes: what was held counts now.
    fn ripen(&mut self) {
        self.at += HOLD;
        let change = self.parity.page(self.parity.moves(), None, self.now());
        self.take(change);
    }

    fn suspected(&self) -> bool {
        self.parity.suspects(self.stamp)
    }

    fn example(&self) -> Option<HitExample> {
        self.parity.read(|state| state.example(self.stamp))
    }

    fn unjudged(&self, why: Unjudged) -> u64 {
        self.parity.read(|state| state.totals.unjudged[why as usize])
    }
}

#[test]
fn an_endpoint_that_hits_less_is_suspected_with_an_example_and_restored_when_it_does_not() {
    let mut scene = Scene::new();
    for _ in 0..12 {
        scene.answer(160, 160);
    }
    for _ in 0..8 {
        // A block less is tolerated; one token more is not.
        scene.answer(160, 143);
    }
    assert!(!scene.suspected(), "nothing counts at once");
    scene.ripen();
    assert!(scene.suspected());
    let example = scene.example().unwrap();
    assert_eq!((example.predicted, example.reported), (160, 143));
    assert_eq!((example.request_id.as_deref(), example.api), (Some("ask"), Some("completions")));
    for _ in 0..13 {
        scene.answer(160, 160);
    }
    scene.ripen();
    assert!(!scene.suspected());
    assert_eq!(scene.changes, [true, false]);
}

#[test]
fn what_could_not_have_been_too_much_neither_condemns_nor_acquits() {
    let mut scene = Scene::new();
    for _ in 0..8 {
        scene.answer(160, 0);
        scene.answer(16, 0);
        scene.answer(0, 0);
    }
    scene.ripen();
    assert!(scene.suspected(), "cold prompts do not hide it");
    for _ in 0..60 {
        scene.answer(16, 16);
    }
    scene.ripen();
    assert!(scene.suspected());
}

#[test]
fn hitting_more_than_predicted_is_counted_and_no_fault() {
    let mut scene = Scene::new();
    for _ in 0..40 {
        scene.answer(160, 480);
    }
    scene.ripen();
    assert!(!scene.suspected());
    let found = scene.parity.read(|state| state.totals.usage);
    assert_eq!((found.verdicts, found.predicted, found.reported), ([0, 0, 0, 40], 6400, 19200));
}

#[test]
fn a_reset_told_after_the_answers_does_not_count() {
    let mut scene = Scene::new();
    for _ in 0..20 {
        scene.answer(160, 0);
    }
    scene.stamp.picture += 1;
    scene.ripen();
    assert!(!scene.suspected());
    assert_eq!(scene.unjudged(Unjudged::Moved), 20);
    // Nor does what was predicted before and answered after.
    let old = Prediction { stamp: FIRST, ..scene.predicted(160) };
    for _ in 0..20 {
        scene.answer_to(old, 0);
    }
    scene.ripen();
    assert!(!scene.suspected() && scene.changes.is_empty());
    assert_eq!(scene.unjudged(Unjudged::Moved), 40);
}

#[test]
fn a_clear_ends_the_suspicion_and_a_broken_connection_does_not() {
    let mut scene = Scene::new();
    (0..8).for_each(|_| scene.answer(160, 0));
    scene.ripen();
    scene.stamp.breaks += 1;
    scene.ripen();
    assert!(scene.suspected());
    scene.stamp.picture += 1;
    assert!(!scene.suspected(), "before anything was judged");
    scene.ripen();
    assert_eq!(scene.changes, [true, false]);
    assert_eq!(scene.example(), None);
    // A late witness of the old picture does not bring it back.
    scene.stamp = FIRST;
    scene.ripen();
    assert!(!scene.suspected());
}

#[test]
fn what_is_not_comparable_is_named() {
    let mut scene = Scene::new();
    let prediction = scene.predicted(160);
    let told = report(1000, Some(0));
    let elsewhere = Prediction { on_device: false, ..prediction };
    for (prediction, report, why) in [
        (Err(Unjudged::Prompt), told, Unjudged::Prompt),
        (Err(Unjudged::Trust), told, Unjudged::Trust),
        (Ok(prediction), Report { clean: false, ..told }, Unjudged::Attempt),
        (Ok(prediction), report(1000, None), Unjudged::NoReport),
        (Ok(prediction), Report { prompt_tokens: None, ..told }, Unjudged::NoReport),
        (Ok(prediction), report(1001, Some(0)), Unjudged::TokenCount),
        (Ok(elsewhere), told, Unjudged::Tier),
    ] {
        let before = scene.unjudged(why);
        for _ in 0..20 {
            assert_eq!(scene.parity.judge(prediction, &report, scene.now()), None);
        }
        assert_eq!(scene.unjudged(why), before + 20, "{why:?}");
    }
    scene.ripen();
    assert!(!scene.suspected());
}

#[test]
fn what_is_held_is_bounded() {
    let mut scene = Scene::new();
    for _ in 0..1000 {
        scene.answer(160, 160);
    }
    assert_eq!(scene.unjudged(Unjudged::Surplus), 1000 - MAX_HELD as u64);
    scene.ripen();
    assert_eq!(scene.parity.read(|state| state.totals.usage.verdicts[0]), MAX_HELD as u64);
}

#[test]
fn a_block_that_is_always_computed_anew_is_learned_and_unlearned() {
    let mut scene = Scene::new();
    for n in 0..8 {
        assert_eq!(scene.parity.dropped_blocks(scene.stamp), 0, "{n}");
        scene.answer(160 + 16 * n, u64::from(144 + 16 * n));
        // Nothing held, nothing dropped.
        scene.answer(0, 0);
        scene.ripen();
    }
    assert_eq!(scene.parity.dropped_blocks(scene.stamp), 1);
    scene.answer(160, 144);
    scene.ripen();
    assert_eq!(scene.parity.read(|state| state.totals.usage.verdicts), [9, 8, 0, 0]);
    // The engine emptied its cache: it is the same engine.
    scene.stamp.picture += 1;
    scene.ripen();
    assert_eq!(scene.parity.dropped_blocks(scene.stamp), 1);
    for _ in 0..8 {
        scene.answer(160, 160);
    }
    scene.ripen();
    assert_eq!(scene.parity.dropped_blocks(scene.stamp), 0);
    (0..8).for_each(|_| scene.answer(160, 144));
    scene.ripen();
    assert_eq!(scene.parity.dropped_blocks(scene.stamp), 1);
    scene.stamp.life += 1;
    assert_eq!(scene.parity.dropped_blocks(scene.stamp), 0, "another engine");
}

/// One request between two pages of the engine's counters.
fn segment(scene: &mut Scene, totals: &mut (f64, f64), held: u32, hit: u32) {
    let prediction = scene.predicted(held);
    scene.parity.sent();
    scene.parity.settled(Some(prediction), 0);
    totals.0 += 1000.0;
    totals.1 += f64::from(hit);
    let counters = Counters { queries: totals.0, hits: totals.1 };
    let change = scene.parity.page(scene.parity.moves(), Some(counters), scene.now());
    scene.take(change);
    scene.at += HOLD;
}

#[test]
fn the_engines_counters_rule_where_answers_are_silent() {
    let mut scene = Scene::new();
    let mut totals = (0.0, 0.0);
    // The first only begins the count.
    for _ in 0..10 {
        segment(&mut scene, &mut totals, 160, 0);
    }
    assert!(scene.suspected());
    for _ in 0..14 {
        segment(&mut scene, &mut totals, 160, 160);
    }
    assert!(!scene.suspected());
    assert_eq!(scene.changes, [true, false]);
}

#[test]
fn the_engines_counters_are_silent_where_answers_rule() {
    let mut scene = Scene::new();
    let mut totals = (0.0, 0.0);
    for _ in 0..40 {
        scene.answer(160, 160);
        segment(&mut scene, &mut totals, 160, 0);
    }
    assert!(!scene.suspected() && scene.changes.is_empty());
    assert!(
        scene.parity.read(|state| state.totals.counters.verdicts[2]) >= 38,
        "but they are shown"
    );
}

#[test]
fn answers_take_a_suspicion_over() {
    let mut scene = Scene::new();
    let mut totals = (0.0, 0.0);
    for _ in 0..10 {
        segment(&mut scene, &mut totals, 160, 0);
    }
    for n in 0..13 {
        assert!(scene.suspected(), "{n}");
        scene.answer(160, 160);
        scene.ripen();
    }
    assert!(!scene.suspected());
    assert_eq!(scene.changes, [true, false]);
}

proptest! {
    /// Whatever comes in whatever order: an engine that hits what was predicted, less a block at
    /// most, is never suspected, and the account of answers is complete.
    #[test]
    fn the_sound_are_never_suspected(
        steps in proptest::collection::vec((0u32..40, 0u32..=1, 0u8..8), 0..300)
    ) {
        let mut scene = Scene::new();
        let mut answers = 0;
        for (blocks, less, event) in steps {
            let held = blocks * BLOCK;
            let hit = held.saturating_sub(less * BLOCK);
            match event {
                0 => scene.stamp.picture += 1,
                1 => scene.stamp.breaks += 1,
                2 => scene.stamp = Stamp { life: scene.stamp.life + 1, picture: scene.stamp.picture + 1, ..scene.stamp },
                3 => scene.ripen(),
                _ => {
                    scene.answer(held, u64::from(hit));
                    answers += 1;
                }
            }
            prop_assert!(!scene.suspected());
        }
        scene.ripen();
        let (judged, unjudged, held) = scene.parity.read(|state| {
            let totals = &state.totals;
            (totals.usage.verdicts.iter().sum::<u64>(), totals.unjudged.iter().sum::<u64>(), state.held.len())
        });
        prop_assert_eq!((judged + unjudged, held), (answers, 0));
    }
}

#[test]
fn what_was_evicted_before_the_answer_began_is_no_fault_and_no_profile() {
    let mut scene = Scene::new();
    let lost = |scene: &mut Scene, reported, evicted| {
        let report = Report { evicted, ..report(1000, Some(reported)) };
        let change = scene.parity.judge(Ok(scene.predicted(320)), &report, scene.now());
        scene.take(change);
    };
    for _ in 0..40 {
        // Ten blocks were lost to others, and the next ten with them; then one alone.
        lost(&mut scene, 160, 10);
        lost(&mut scene, 304, 1);
        scene.ripen();
    }
    assert_eq!((scene.suspected(), scene.predicted(320).tokens), (false, 320));
    assert_eq!(scene.unjudged(Unjudged::Moved), 80);
    // Fewer evictions than are missing do not explain it.
    for _ in 0..8 {
        lost(&mut scene, 160, 9);
    }
    scene.ripen();
    assert!(scene.suspected());
    // From then on they are no excuse: what agrees is not all that counts.
    for _ in 0..20 {
        lost(&mut scene, 160, 10);
        lost(&mut scene, 320, 10);
        scene.ripen();
    }
    assert!(scene.suspected());
}

#[test]
fn steady_under_prediction_has_an_example_and_ends_with_the_picture() {
    let mut scene = Scene::new();
    let example = |scene: &Scene| scene.parity.read(|state| state.under_example(scene.stamp));
    // A bit more than was predicted is nothing, and so is much more seven times of twenty.
    for turn in 0..40 {
        scene.answer(160, if turn % 20 < 7 { 480 } else { 200 });
        scene.ripen();
    }
    assert_eq!(example(&scene), None);
    for _ in 0..8 {
        scene.answer(32, 480);
        scene.ripen();
    }
    let found = example(&scene).unwrap();
    assert_eq!((found.predicted, found.reported), (32, 480));
    assert!(!scene.suspected() && scene.changes.is_empty());
    scene.stamp.picture += 1;
    scene.ripen();
    assert_eq!(example(&scene), None);
}
