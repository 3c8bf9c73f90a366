//! One fleet after the other over the same engines, none of which is there.

use std::collections::{BTreeSet, HashMap};

use http::uri::Authority;
use kvasir_balance::{PolicyKind, SelectionSpec, SessionSource, StickyOptions};
use kvasir_inventory::Limits;
use kvasir_kv_hash::KeySpace;
use proptest::prelude::*;

use super::*;
use crate::asked::Asked;
use crate::evidence::PromptTokens;
use crate::identity::{BlockIdentity, EngineHashing, HashAlgorithm};
use crate::load::Reservation;
use crate::spec::{
    AdminState, EndpointSpec, EventSpec, HealthSpec, RankAddressingKind, Timeouts, TokenSpec,
};

mod carried;
mod changed;
mod names;
mod retired;
mod split;

/// Where nobody listens.
fn authority(number: u16) -> Authority {
    format!("127.0.0.2:{number}").parse().unwrap()
}

fn endpoint(number: u16) -> EndpointSpec {
    EndpointSpec::at(authority(number))
}

fn pool(model: &str, engines: impl IntoIterator<Item = u16>) -> PoolSpec {
    PoolSpec {
        model: model.to_owned(),
        aliases: Vec::new(),
        decision_headers: None,
        selection: SelectionSpec::of(PolicyKind::LeastLoad),
        tokenizer_dir: None,
        authorization: None,
        tokens: TokenSpec::default(),
        rank_addressing: RankAddressingKind::None,
        identity: BlockIdentity::Tokens,
        timeouts: Timeouts::default(),
        admission: None,
        split: None,
        endpoints: engines.into_iter().map(endpoint).collect(),
    }
}

fn fleet(pools: Vec<PoolSpec>) -> FleetSpec {
    FleetSpec {
        pools,
        scrape_interval: Duration::from_secs(3600),
        connect_timeout: Duration::from_secs(1),
        seed: 1,
        decision_log: None,
        health: HealthSpec::default(),
    }
}

fn start(pools: Vec<PoolSpec>) -> Fleet {
    let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
    Fleet::start(fleet(pools), inventory).unwrap()
}

fn reload(before: &Fleet, pools: Vec<PoolSpec>) -> (Fleet, Changes) {
    before.reload(fleet(pools)).unwrap()
}

fn send(pool: &Pool, tokens: u64) -> Option<Reservation> {
    let prompt =
        PromptTokens { prompts: None, count: tokens, exact: false, adapter: None, salt: None };
    Some(pool.choose(pool.model(), &pool.evidence(&prompt), &[]).ok()?.reservation)
}

fn urls(numbers: &[u16]) -> Vec<String> {
    numbers.iter().map(|n| format!("http://127.0.0.2:{n}")).collect()
}

#[tokio::test]
async fn what_did_not_change_is_the_same_as_before() {
    let first = start(vec![pool("m", [1, 2]), pool("n", [2])]);
    let (second, changes) = reload(&first, vec![pool("m", [1, 2]), pool("n", [2])]);
    assert!(changes.is_empty(), "{changes}");
    for (one, other) in first.pools().iter().zip(second.pools()) {
        assert!(Arc::ptr_eq(one, other));
    }
    for (one, other) in first.engines.iter().zip(&second.engines) {
        assert!(Arc::ptr_eq(one, other));
    }
}

#[tokio::test]
async fn a_pool_keeps_what_does_not_depend_on_what_changed() {
    let first = start(vec![pool("m", [1, 2])]);
    let before = Arc::clone(&first.pools()[0]);
    let held = send(&before, 100).unwrap();
    let mut changed = pool("m", [2, 3, 1]);
    changed.authorization = Some("Bearer x".parse().unwrap());
    let (second, changes) = reload(&first, vec![changed.clone()]);
    assert_eq!(changes.pools_changed, ["m"]);
    assert_eq!(changes.engines_added, urls(&[3]));
    assert_eq!(changes.engines_changed, urls(&[1, 2]), "they are asked with another key");
    assert!(changes.selections_begun_anew.is_empty());
    let now = Arc::clone(&second.pools()[0]);
    assert!(!Arc::ptr_eq(&before, &now));
    let (old, new) = (before.state(), now.state());
    assert!(Arc::ptr_eq(&old.selecting, &new.selecting));
    assert!(Arc::ptr_eq(&old.prompts, &new.prompts));
    assert!(Arc::ptr_eq(&old.token_parity, &new.token_parity));
    let endpoint = held.endpoint();
    assert!(now.members().iter().any(|member| Arc::ptr_eq(member, endpoint)));
    assert_eq!((endpoint.in_flight(), endpoint.queued_prefill_tokens()), (1, 100));
    drop(held);
    assert_eq!(second.in_flight(), 0);

    changed.selection = SelectionSpec::of(PolicyKind::RoundRobin);
    changed.tokens.max_prompt_bytes = 4096;
    let (third, changes) = reload(&second, vec![changed]);
    assert_eq!(changes.selections_begun_anew, ["m"]);
    let newest = third.pools()[0].state();
    assert!(!Arc::ptr_eq(&newest.selecting, &new.selecting));
    assert!(!Arc::ptr_eq(&newest.prompts, &new.prompts));
}

#[tokio::test]
async fn a_specification_that_does_not_fit_changes_nothing() {
    let first = start(vec![pool("m", [1])]);
    let mut weighed = pool("m", [1]);
    weighed.endpoints[0].weight = 7;
    weighed.endpoints[0].state = AdminState::Disabled;
    let mut other = pool("n", [1, 2]);
    other.rank_addressing = RankAddressingKind::Header;
    let error = first.reload(fleet(vec![weighed.clone(), other])).unwrap_err();
    assert_eq!(error, FleetError::Addressing("127.0.0.2:1".to_owned()));
    let endpoint = &first.endpoints()[0];
    assert_eq!((endpoint.weight(), endpoint.state()), (100, AdminState::Active));
    let (second, _) = reload(&first, vec![weighed]);
    assert!(Arc::ptr_eq(endpoint, &second.endpoints()[0]));
    assert_eq!((endpoint.weight(), endpoint.state()), (7, AdminState::Disabled));
}

#[tokio::test]
async fn an_engine_that_left_stays_until_its_last_request_and_may_come_back() {
    let first = start(vec![pool("m", [1])]);
    let held = send(&first.pools()[0], 100).unwrap();
    let name = held.endpoint().name();
    let (second, changes) = reload(&first, vec![pool("m", [2])]);
    assert_eq!((changes.engines_left, changes.engines_added), (urls(&[1]), urls(&[2])));
    let chosen = send(&second.pools()[0], 1).unwrap();
    assert_eq!(chosen.endpoint().url(), urls(&[2])[0]);
    let page = |fleet: &Fleet| {
        let mut page = String::new();
        fleet.render_metrics(&mut page);
        page
    };
    let leaving = format!("kvasir_endpoint_state{{endpoint=\"{name}\",state=\"leaving\"}} 1\n");
    assert!(page(&second).contains(&leaving));
    assert!(second.roster.reap().await, "it has a request");
    // Back before that ended: nothing was lost.
    let (third, changes) = reload(&second, vec![pool("m", [1, 2])]);
    assert_eq!(changes.engines_returned, urls(&[1]));
    assert!(third.endpoints().iter().any(|known| Arc::ptr_eq(known, held.endpoint())));
    assert_eq!(held.endpoint().in_flight(), 1);
    // Gone for good.
    let (fourth, _) = reload(&third, vec![pool("m", [2])]);
    drop(held);
    assert!(!fourth.roster.reap().await);
    assert!(!page(&fourth).contains(&name));
    assert_eq!(fourth.in_flight(), 1, "the other one's");
}

#[tokio::test]
async fn a_late_choice_by_an_old_pool_counts_for_the_engine_that_came_back() {
    let first = start(vec![pool("m", [1])]);
    let old = Arc::clone(&first.pools()[0]);
    let (second, _) = reload(&first, vec![pool("m", [2])]);
    while second.roster.reap().await {}
    let late = send(&old, 50).unwrap();
    let (third, changes) = reload(&second, vec![pool("m", [1])]);
    assert_eq!(changes.engines_added, urls(&[1]), "it was gone");
    let endpoint = &third.endpoints()[0];
    assert!(!Arc::ptr_eq(endpoint, late.endpoint()));
    assert_eq!((endpoint.in_flight(), endpoint.queued_prefill_tokens()), (1, 50));
    drop(late);
    assert_eq!((endpoint.in_flight(), endpoint.queued_prefill_tokens()), (0, 0));
}

#[tokio::test]
async fn settings_of_one_engine_disturb_no_other() {
    let first = start(vec![pool("m", [1, 2])]);
    let mut changed = pool("m", [1, 2]);
    let event = EventSpec {
        publisher: "tcp://*:5557".to_owned(),
        replay: None,
        topic: String::new(),
        bind: false,
    };
    changed.endpoints[0].events = Some(event);
    changed.endpoints[0].ranks = Some(2);
    let (second, changes) = reload(&first, vec![changed.clone()]);
    assert_eq!((changes.engines_changed, changes.pools_changed), (urls(&[1]), Vec::new()));
    let endpoints = second.endpoints();
    assert_eq!(endpoints[0].streams().len(), 2, "one a rank");
    assert!(Arc::ptr_eq(&endpoints[0], &first.endpoints()[0]));
    // Blocks that are known in another way are other blocks.
    let held = send(&second.pools()[0], 10).unwrap();
    let hashing = EngineHashing { algorithm: HashAlgorithm::Sglang, seed: None, version: None };
    changed.identity = BlockIdentity::Engine(hashing);
    let (third, changes) = reload(&second, vec![changed]);
    assert_eq!(changes.engines_begun_anew, urls(&[1, 2]));
    assert_eq!(third.in_flight(), 1, "what is in flight counts on");
    drop(held);
    assert_eq!(third.in_flight(), 0);
}

#[tokio::test]
async fn a_state_set_by_hand_holds_until_the_configuration_says_another_than_before() {
    let states = |state: AdminState| {
        let mut spec = pool("m", [1]);
        spec.endpoints[0].state = state;
        vec![spec]
    };
    let first = start(states(AdminState::Active));
    let endpoint = Arc::clone(&first.endpoints()[0]);
    endpoint.set_state(AdminState::Drain);
    let (second, _) = reload(&first, states(AdminState::Active));
    assert_eq!(endpoint.state(), AdminState::Drain);
    let (third, _) = reload(&second, states(AdminState::Disabled));
    assert_eq!(endpoint.state(), AdminState::Disabled);
    let (_fourth, _) = reload(&third, states(AdminState::Active));
    assert_eq!(endpoint.state(), AdminState::Active);
}

#[tokio::test]
async fn a_request_that_is_under_way_goes_by_the_states_it_began_with() {
    let states = |engines: [(u16, AdminState); 2]| {
        let mut spec = pool("m", engines.map(|(number, _)| number));
        for (endpoint, (_, state)) in spec.endpoints.iter_mut().zip(engines) {
            endpoint.state = state;
        }
        vec![spec]
    };
    use AdminState::{Active, Drain};
    let first = start(states([(1, Active), (2, Drain)]));
    let old = Arc::clone(&first.pools()[0]);
    first.endpoints().iter().for_each(|endpoint| endpoint.mark_reachable());
    let (second, _) = reload(&first, states([(1, Drain), (3, Active)]));
    let chosen = send(&old, 1).unwrap();
    assert_eq!(chosen.endpoint().url(), urls(&[1])[0], "where it could go when it came");
    let chosen = send(&second.pools()[0], 1).unwrap();
    assert_eq!(chosen.endpoint().url(), urls(&[3])[0]);
    // By hand it holds for all.
    first.endpoints()[0].set_state(AdminState::Disabled);
    assert!(send(&old, 1).is_none());
}

/// A request of a conversation.
fn talk(pool: &Pool, session: u64) -> Option<Reservation> {
    let prompt = PromptTokens { prompts: None, count: 9, exact: false, adapter: None, salt: None };
    let asked = Asked { session: Some(session), ..Asked::default() };
    let evidence = pool.evidence_of(&prompt, &asked);
    Some(pool.choose(pool.model(), &evidence, &[]).ok()?.reservation)
}

#[tokio::test]
async fn a_draining_endpoint_takes_pinned_conversations_only_and_a_disabled_one_nobody() {
    let mut spec = pool("m", [1, 2]);
    spec.selection.sticky = Some(StickyOptions::default());
    spec.selection.sessions = SessionSource::defaults();
    let fleet = start(vec![spec]);
    let pool = &fleet.pools()[0];
    let endpoints = fleet.endpoints();
    endpoints.iter().for_each(|endpoint| endpoint.mark_reachable());
    endpoints[1].set_state(AdminState::Disabled);
    let mut answered = talk(pool, 7).unwrap();
    assert!(Arc::ptr_eq(answered.endpoint(), &endpoints[0]));
    answered.first_data(true);
    drop(answered);
    endpoints[1].set_state(AdminState::Active);
    endpoints[0].set_state(AdminState::Drain);
    for session in 100..120 {
        let chosen = talk(pool, session).unwrap();
        assert!(Arc::ptr_eq(chosen.endpoint(), &endpoints[1]), "a new conversation");
    }
    let chosen = talk(pool, 7).unwrap();
    assert!(Arc::ptr_eq(chosen.endpoint(), &endpoints[0]), "one that is there");
    drop(chosen);
    // Stored there, and nowhere else.
    let none = PromptTokens { prompts: None, count: 1, exact: false, adapter: None, salt: None };
    let evidence = pool.evidence(&none);
    assert!(pool.choose_owner("m", &evidence, &[], &endpoints[0]).is_ok());
    // One that drains and does not work is no last resort.
    endpoints[0].mark_unreachable("gone");
    endpoints[1].set_state(AdminState::Disabled);
    assert!(send(pool, 1).is_none() && talk(pool, 7).is_none());
    assert_eq!(pool.why_none("m"), "none is in service (1 unreachable, 1 disabled)");
    endpoints[0].mark_reachable();
    assert!(send(pool, 1).is_none(), "a new one has nowhere to go");
    let why = "all of them were taken out of service (1 draining, 1 disabled)";
    assert_eq!(pool.why_none("m"), why);
    assert!(!pool.is_ready());
}

#[derive(Clone, Debug)]
enum Step {
    Reload {
        m: BTreeSet<u16>,
        n: BTreeSet<u16>,
    },
    Send {
        pool: usize,
        tokens: u64,
    },
    /// By a pool of a fleet before.
    SendLate {
        pool: usize,
    },
    FirstData(usize),
    NotComputed(usize),
    Finish(usize),
    Reap,
}

fn step() -> impl Strategy<Value = Step> {
    let some = || proptest::collection::btree_set(1_u16..5, 1..4);
    prop_oneof![
        2 => (some(), some()).prop_map(|(m, n)| Step::Reload { m, n }),
        4 => (0_usize..2, 0_u64..10_000).prop_map(|(pool, tokens)| Step::Send { pool, tokens }),
        1 => any::<usize>().prop_map(|pool| Step::SendLate { pool }),
        2 => any::<usize>().prop_map(Step::FirstData),
        1 => any::<usize>().prop_map(Step::NotComputed),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => Just(Step::Reap),
    ]
}

/// A request as a naive reading counts it.
struct Live {
    name: String,
    tokens: u64,
    queued: bool,
    reservation: Reservation,
}

#[derive(Default)]
struct Played {
    live: Vec<Live>,
    /// Pools of fleets that are gone.
    old: Vec<Arc<Pool>>,
}

impl Played {
    fn send(&mut self, pool: &Pool, tokens: u64) {
        if let Some(reservation) = send(pool, tokens) {
            let name = reservation.endpoint().name();
            self.live.push(Live { name, tokens, queued: true, reservation });
        }
    }

    fn check(&self, fleet: &Fleet) -> Result<(), TestCaseError> {
        let mut wanted: HashMap<&str, (u32, u64)> = HashMap::new();
        for Live { name, tokens, queued, .. } in &self.live {
            let (requests, waiting) = wanted.entry(name).or_default();
            *requests += 1;
            *waiting += if *queued { *tokens } else { 0 };
        }
        let held = self.live.iter().map(|live| Arc::clone(live.reservation.endpoint()));
        let old = self.old.iter().flat_map(|pool| pool.members().to_vec());
        for endpoint in fleet.endpoints().into_iter().chain(held).chain(old) {
            let seen = (endpoint.in_flight(), endpoint.queued_prefill_tokens());
            let wanted = wanted.get(&*endpoint.name()).copied().unwrap_or_default();
            prop_assert_eq!(seen, wanted, "{}", endpoint.name());
            prop_assert_eq!(endpoint.decoding(), self.decoding(&endpoint.name()));
        }
        Ok(())
    }

    fn decoding(&self, name: &str) -> u32 {
        self.live.iter().filter(|live| live.name == name && !live.queued).count() as u32
    }
}

async fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut now = start(vec![pool("m", [1, 2]), pool("n", [2, 3])]);
    let mut played = Played::default();
    for step in steps {
        match step {
            Step::Reload { m, n } => {
                played.old.extend(now.pools().iter().cloned());
                let surplus = played.old.len().saturating_sub(6);
                played.old.drain(..surplus);
                let (next, _) = reload(&now, vec![pool("m", m), pool("n", n)]);
                now = next;
            }
            Step::Send { pool, tokens } => played.send(&now.pools()[pool], tokens),
            Step::SendLate { pool } if !played.old.is_empty() => {
                let pool = Arc::clone(&played.old[pool % played.old.len()]);
                played.send(&pool, 77);
            }
            Step::FirstData(which) if !played.live.is_empty() => {
                let which = which % played.live.len();
                played.live[which].reservation.first_data(true);
                played.live[which].queued = false;
            }
            Step::NotComputed(which) if !played.live.is_empty() => {
                let which = which % played.live.len();
                played.live[which].reservation.not_computed();
            }
            Step::Finish(which) if !played.live.is_empty() => {
                let which = which % played.live.len();
                drop(played.live.swap_remove(which));
            }
            Step::Reap => {
                now.roster.reap().await;
            }
            _ => {}
        }
        played.check(&now)?;
    }
    played.live.clear();
    played.check(&now)?;
    prop_assert!(!now.roster.reap().await, "nobody is leaving any more");
    prop_assert_eq!(now.in_flight(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_are_counted_once_whatever_is_reloaded(
        steps in proptest::collection::vec(step(), 0..80)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps))?;
    }
}
