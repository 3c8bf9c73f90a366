//! Pending prefixes against a list of what is pending.

mod cost;

use kvasir_kv_hash::{KeySpace, Scope};
use proptest::prelude::*;

use super::*;

fn chain(tokens: &[u32]) -> Chain {
    let space = KeySpace::fixed();
    let keys = space.chain(space.root(&Scope::default()), tokens, 1);
    Chain { usable: keys.len().saturating_sub(1), keys }
}

pub(super) fn prompts(prompts: &[Vec<u32>]) -> Arc<PromptKeys> {
    let prompts = prompts.iter().map(|tokens| chain(tokens)).collect();
    Arc::new(PromptKeys { block_size: 1, prompts })
}

/// Prompts of the first blocks of these.
pub(super) fn beginnings(whole: &PromptKeys, blocks: usize) -> Arc<PromptKeys> {
    let chain = |chain: &Chain| Chain {
        keys: chain.keys[..blocks].to_vec(),
        usable: blocks.saturating_sub(1),
    };
    let prompts = whole.prompts.iter().map(chain).collect();
    Arc::new(PromptKeys { block_size: whole.block_size, prompts })
}

/// Keys of one prompt that are pending in each slot.
fn found(
    all: &PendingPrefixes,
    slots: &[PendingSlot],
    keys: &PromptKeys,
    now: Instant,
) -> Vec<usize> {
    let found = all.find(&[Some(keys)], now);
    let first = |slot| found[0].first().map_or(0, |found| found.keys(slot));
    slots.iter().map(first).collect()
}

/// Nothing is left, not even the memory of it.
#[track_caller]
fn assert_empty(all: &PendingPrefixes) {
    let state = all.state.lock();
    let left =
        (state.claims.len(), state.bytes(), state.prefixes.keys(), state.prefixes.segments());
    assert_eq!(left, (0, 0, 0, 0));
    assert!(state.slots.iter().all(|slot| slot.prompts == 0 && slot.claims.is_empty()));
}

/// One request of the naive model.
struct Naive {
    slot: usize,
    prompts: Vec<Vec<u32>>,
    ends: Option<Instant>,
    claim: Option<PendingClaim>,
}

impl Naive {
    fn shared(&self, wanted: &[u32]) -> usize {
        let usable = &wanted[..wanted.len().saturating_sub(1)];
        let common = |have: &Vec<u32>| have.iter().zip(usable).take_while(|(a, b)| a == b).count();
        self.prompts.iter().map(common).max().unwrap_or(0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin(usize, Vec<Vec<u32>>),
    Computed(usize),
    Drop(usize),
    EndComputed(usize),
    EndAll(usize),
    Wait(u64),
    Replace(usize),
}

const SLOTS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let prompt = || prop::collection::vec(0_u32..2, 0..12);
    prop_oneof![
        8 => (0..SLOTS, prop::collection::vec(prompt(), 1..3)).prop_map(|(s, p)| Step::Begin(s, p)),
        4 => any::<usize>().prop_map(Step::Computed),
        4 => any::<usize>().prop_map(Step::Drop),
        1 => (0..SLOTS).prop_map(Step::EndComputed),
        1 => (0..SLOTS).prop_map(Step::EndAll),
        2 => (0_u64..2_500).prop_map(Step::Wait),
        1 => (0..SLOTS).prop_map(Step::Replace),
    ]
}

proptest! {
    #[test]
    fn what_is_pending_is_what_a_list_of_requests_says(
        steps in prop::collection::vec(step(), 1..80),
        wanted in prop::collection::vec(prop::collection::vec(0_u32..2, 0..12), 1..6),
    ) {
        let all = Arc::<PendingPrefixes>::default();
        let mut slots: Vec<PendingSlot> = (0..SLOTS).map(|_| all.slot()).collect();
        let mut now = Instant::now();
        let mut live: Vec<Naive> = Vec::new();
        for step in steps {
            let which = |n: usize, live: &Vec<Naive>| n.checked_rem(live.len());
            match step {
                Step::Begin(slot, texts) => {
                    let claim = slots[slot].begin(&prompts(&texts));
                    prop_assert_eq!(claim.is_some(), texts.iter().any(|text| !text.is_empty()));
                    live.push(Naive { slot, prompts: texts, ends: None, claim });
                }
                Step::Computed(n) => if let Some(at) = which(n, &live) {
                    let request = &mut live[at];
                    if let Some(claim) = &mut request.claim {
                        claim.computed(now);
                        request.ends = request.ends.or(Some(now + GRACE));
                    }
                },
                Step::Drop(n) => if let Some(at) = which(n, &live) {
                    live[at].claim = None;
                    if live[at].ends.is_none() {
                        live.remove(at);
                    }
                },
                Step::EndComputed(slot) => {
                    slots[slot].end_computed();
                    live.retain(|request| request.slot != slot || request.ends.is_none());
                }
                Step::EndAll(slot) => {
                    slots[slot].end_all();
                    live.retain(|request| request.slot != slot);
                }
                Step::Wait(millis) => now += Duration::from_millis(millis),
                Step::Replace(slot) => {
                    slots[slot] = all.slot();
                    live.retain(|request| request.slot != slot);
                }
            }
            live.retain(|request| request.ends.is_none_or(|ends| ends > now));
            for wanted in &wanted {
                let of_slot = |slot| {
                    let there = live.iter().filter(|request| request.slot == slot);
                    there.map(|request| request.shared(wanted)).max().unwrap_or(0)
                };
                let naive: Vec<usize> = (0..SLOTS).map(of_slot).collect();
                prop_assert_eq!(found(&all, &slots, &prompts(std::slice::from_ref(wanted)), now), naive);
            }
            let keys: usize = live.iter().flat_map(|r| &r.prompts).map(Vec::len).sum();
            let state = all.state.lock();
            prop_assert!(state.prefixes.keys() <= keys, "{} of {keys}", state.prefixes.keys());
            prop_assert!(state.bytes() >= (keys + state.prefixes.keys()) * KEY);
        }
        live.clear();
        let _ = all.find(&[], now + GRACE);
        assert_empty(&all);
    }
}

#[test]
fn a_claim_lives_as_long_as_its_request_computes_and_a_grace_more() {
    let all = Arc::<PendingPrefixes>::default();
    let slots = [all.slot()];
    let keys = prompts(&[(0..10).collect()]);
    let start = Instant::now();
    let long = start + Duration::from_secs(3600);
    let mut claim = slots[0].begin(&keys).unwrap();
    assert_eq!(found(&all, &slots, &keys, long), [9], "however long it takes");
    claim.computed(long);
    claim.computed(long + GRACE);
    let almost = long + GRACE.checked_sub(Duration::from_millis(1)).unwrap();
    drop(claim);
    assert_eq!((found(&all, &slots, &keys, almost), slots[0].prompts(almost)), (vec![9], 1));
    assert_eq!(found(&all, &slots, &keys, long + GRACE), [0]);
    assert_empty(&all);
    drop(slots[0].begin(&keys).unwrap());
    assert_empty(&all);
}

#[test]
fn what_would_be_too_much_is_left_out() {
    let all = Arc::<PendingPrefixes>::default();
    let slots = [all.slot()];
    let long: Vec<u32> = (0..20_000).collect();
    let keys = prompts(&vec![long; MAX_PROMPTS + 1]);
    let mut claims: Vec<PendingClaim> = std::iter::from_fn(|| slots[0].begin(&keys)).collect();
    assert!(claims.len() > 5);
    let full = all.state.lock().bytes();
    assert!((MAX_BYTES / 100 * 90..=MAX_BYTES).contains(&full), "{full} bytes");
    assert_eq!(all.state.lock().prefixes.keys(), MAX_KEYS, "each prefix is kept once");
    assert_eq!(found(&all, &slots, &keys, Instant::now()), [MAX_KEYS]);
    assert_eq!(all.find(&[Some(&keys)], Instant::now())[0].len(), MAX_PROMPTS);
    claims.pop();
    assert!(slots[0].begin(&keys).is_some(), "there is room again");
    claims.clear();
    assert_empty(&all);
    let few = prompts(&[vec![1]]);
    let most: Vec<PendingClaim> = std::iter::from_fn(|| slots[0].begin(&few)).collect();
    assert_eq!(most.len(), MAX_CLAIMS);
}

#[test]
fn a_prefix_that_is_always_in_use_does_not_fall_to_pieces() {
    let all = Arc::<PendingPrefixes>::default();
    let slots = [all.slot()];
    let hot: Vec<u32> = (0..2_000).collect();
    let mut window = VecDeque::new();
    let mut noise = 7_u32;
    for n in 0..3_000_u32 {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut tokens = hot[..(noise >> 8) as usize % 2_000].to_vec();
        tokens.extend([1_000_000 + n; 5]);
        window.push_back(slots[0].begin(&prompts(&[tokens])));
        if window.len() > 32 {
            window.pop_front();
        }
        let segments = all.state.lock().prefixes.segments();
        assert!(segments <= 4 * 33, "{segments} segments of {} prompts", window.len());
    }
}

#[test]
fn a_chain_that_parts_from_others_all_the_time_is_cut() {
    let all = Arc::<PendingPrefixes>::default();
    let slots = [all.slot()];
    let nested: Vec<PendingClaim> =
        (1..400).filter_map(|length| slots[0].begin(&prompts(&[(0..length).collect()]))).collect();
    let keys = prompts(&[(0..1_000).collect()]);
    assert_eq!(found(&all, &slots, &keys, Instant::now()), [prefixes::MAX_STEPS]);
    drop(nested);
    assert_empty(&all);
}

#[test]
fn ending_a_slot_looks_at_its_own_claims_only() {
    let all = Arc::<PendingPrefixes>::default();
    let slots = [all.slot(), all.slot(), all.slot()];
    let keys = prompts(&[(0..10).collect()]);
    let begin = |slot: &PendingSlot| slot.begin(&keys).unwrap();
    let (kept, mut computed, open) = (begin(&slots[0]), begin(&slots[1]), begin(&slots[1]));
    computed.computed(Instant::now());
    let looked_at = |slot: &PendingSlot| {
        let count = std::cell::Cell::new(0);
        let note = |_: &Claimed| {
            count.set(count.get() + 1);
            false
        };
        all.state.lock().end_where(slot.number, note);
        count.get()
    };
    assert_eq!(slots.each_ref().map(looked_at), [1, 2, 0]);
    slots[1].end_computed();
    assert_eq!(slots.each_ref().map(looked_at), [1, 1, 0]);
    slots[1].end_all();
    assert_eq!(slots.each_ref().map(looked_at), [1, 0, 0]);
    drop((kept, computed, open));
    assert_empty(&all);
}

#[test]
fn one_removal_mends_every_seam_it_passes() {
    let all = Arc::<PendingPrefixes>::default();
    let slots = [all.slot(), all.slot()];
    let begin = |slot: usize, length| slots[slot].begin(&prompts(&[(0..length).collect()]));
    let segments = || all.state.lock().prefixes.segments();
    let (kept, half) = (begin(0, 1_000), begin(1, 500));
    let passing = begin(1, 1_000);
    // Each ends before the next: what they leave behind are seams of the chains above.
    let seams: Vec<_> = (1..200).rev().map(|n| begin(1, n * 5)).collect();
    assert_eq!(segments(), 200);
    drop(seams);
    let left = segments();
    drop(passing);
    assert_eq!(segments(), 2, "of {left}: a seam is left where a chain ends");
    let keys = prompts(&[(0..1_000).collect()]);
    assert_eq!(found(&all, &slots, &keys, Instant::now()), [999, 500]);
    drop((kept, half));
    assert_empty(&all);
}

#[test]
fn all_prompts_of_a_request_share_its_steps() {
    let all = Arc::<PendingPrefixes>::default();
    let slots = [all.slot(), all.slot()];
    let text = |prompt: u32, blocks| (prompt * 1_000_000..prompt * 1_000_000 + blocks).collect();
    let whole = prompts(&(0..16).map(|prompt| text(prompt, 300)).collect::<Vec<_>>());
    let batch = |blocks| beginnings(&whole, blocks);
    // The second drops out half way.
    let longest = slots[0].begin(&batch(300));
    let nested: Vec<_> =
        (1..300).rev().map(|n| slots[usize::from(n <= 150)].begin(&batch(n))).collect();
    let keys = batch(300);
    let seen = |ways: &[Option<&PromptKeys>]| -> Vec<Vec<[usize; 2]>> {
        let keys = |found: &Found| slots.each_ref().map(|slot| found.keys(slot));
        let found = all.find(ways, Instant::now());
        found.iter().map(|way| way.iter().map(keys).collect()).collect()
    };
    let share = MAX_FIND_STEPS / 16;
    assert_eq!(seen(&[Some(&keys)]), [[[share; 2]; 16]]);
    let half = vec![[share / 2; 2]; 16];
    assert_eq!(seen(&[Some(&keys), None, Some(&keys)]), [half.clone(), Vec::new(), half]);
    let one = prompts(&[text(3, 300)]);
    assert_eq!(seen(&[Some(&one)]), [[[prefixes::MAX_STEPS, 150]]]);
    let strange = prompts(&[vec![u32::MAX; 9], text(3, 300)]);
    assert_eq!(seen(&[Some(&strange)]), [[[0, 0], [prefixes::MAX_STEPS, 150]]]);
    drop((longest, nested));
    assert_empty(&all);
}

#[test]
fn short_prompts_with_many_holders_are_not_kept_for_nothing() {
    let all = Arc::<PendingPrefixes>::default();
    let slots: Vec<PendingSlot> = (0..256).map(|_| all.slot()).collect();
    let whole = prompts(&[(0..250).collect()]);
    // Each parting copies all holders.
    let longest: Vec<_> = slots.iter().map(|slot| slot.begin(&whole)).collect();
    let nested: Vec<_> =
        (1..250).rev().map(|blocks| slots[0].begin(&beginnings(&whole, blocks))).collect();
    let state = all.state.lock();
    let (keys, bytes) = (state.prefixes.keys(), state.prefixes.bytes());
    assert_eq!((keys, state.prefixes.segments()), (250, 250));
    assert!(bytes > 250 * 256 * size_of::<u64>(), "{bytes} bytes of {keys} keys");
    drop(state);
    drop((longest, nested));
    assert_empty(&all);
    let few = prompts(&vec![vec![1]; MAX_PROMPTS]);
    let most: Vec<PendingClaim> = std::iter::from_fn(|| slots[0].begin(&few)).collect();
    let bound = MAX_BYTES / (CLAIM + MAX_PROMPTS * (PROMPT + KEY));
    assert!((bound / 100 * 90..=bound).contains(&most.len()), "{} of {bound}", most.len());
}
