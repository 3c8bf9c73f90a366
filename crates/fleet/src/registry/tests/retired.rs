//! Requests at endpoints that go by another name since a reload, or that are none any more.

use super::*;
use crate::admission::{
    AdmissionSpec, Asker, EndpointLimits, Limits as AdmissionLimits, Most, NoRoom, QueueSpec,
};

fn at_most(requests: u32) -> AdmissionSpec {
    let most = Most { requests: Some(requests), prefill_tokens: None };
    AdmissionSpec {
        limits: AdmissionLimits {
            pool: Most::default(),
            endpoint: EndpointLimits { most, kv_usage: None },
        },
        queue: QueueSpec { places: 4, max_wait: Duration::from_secs(60) },
        hold: Duration::ZERO,
        tenant_header: None,
        priority_header: None,
        timeout_header: None,
    }
}

fn page(fleet: &Fleet) -> String {
    let mut page = String::new();
    fleet.render_metrics(&mut page);
    page
}

fn ranked(addressing: RankAddressingKind) -> PoolSpec {
    let mut spec = pool("m", [1]);
    spec.rank_addressing = addressing;
    spec.admission = Some(at_most(2));
    spec
}

/// No series is there twice.
fn assert_no_twins(page: &str) {
    let mut seen = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        assert!(seen.insert(series), "{series}");
    }
}

#[tokio::test]
async fn requests_at_endpoints_by_another_name_are_shown_and_limited_until_they_end() {
    for (before, now) in [
        (RankAddressingKind::None, RankAddressingKind::Header),
        (RankAddressingKind::Header, RankAddressingKind::None),
    ] {
        let first = start(vec![ranked(before)]);
        let held = [send(&first.pools()[0], 10).unwrap(), send(&first.pools()[0], 10).unwrap()];
        let (second, changes) = reload(&first, vec![ranked(now)]);
        assert_eq!(changes.engines_begun_anew, urls(&[1]));
        assert_eq!(second.in_flight(), 2);
        let rank = held[0].endpoint().rank().map_or(String::new(), |r| format!(",rank=\"{r}\""));
        let name = format!("endpoint=\"{}\"{rank}", urls(&[1])[0]);
        let series = format!("kvasir_endpoint_in_flight{{{name}}} 2\n");
        assert!(page(&second).contains(&series), "{series}");
        assert_no_twins(&page(&second));
        let pool = &second.pools()[0];
        let prompt =
            PromptTokens { prompts: None, count: 1, exact: false, adapter: None, salt: None };
        let choose = || pool.choose("m", &pool.evidence(&prompt), &[]);
        assert_eq!(choose().unwrap_err(), NoRoom::Full, "the engine has two");
        // Who waits hears of the end of one.
        let door = pool.door().unwrap();
        let mut held = held.into_iter();
        let waits = door.admit(|| pool.members(), Asker::default(), choose);
        let end = async {
            while door.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            drop(held.next());
        };
        let both = async { tokio::join!(waits, end).0 };
        let turn = tokio::time::timeout(Duration::from_secs(20), both).await.expect("it hears");
        let chosen = turn.result.unwrap();
        drop(held);
        assert_eq!(second.in_flight(), 1);
        assert!(!page(&second).contains(&format!("in_flight{{{name}}}")), "it is gone");
        assert!(choose().is_ok(), "one more");
        drop(chosen);
        assert_eq!(second.in_flight(), 0);
    }
}

#[tokio::test]
async fn requests_at_a_rank_that_is_gone_are_counted_until_they_end() {
    let ranks = |count| {
        let mut spec = ranked(RankAddressingKind::Header);
        spec.endpoints[0].ranks = Some(count);
        vec![spec]
    };
    let first = start(ranks(2));
    let held: Vec<Reservation> = (0..2).map(|_| send(&first.pools()[0], 10).unwrap()).collect();
    let (second, _) = reload(&first, ranks(1));
    assert_eq!((second.endpoints().len(), second.in_flight()), (1, 2));
    assert!(page(&second).contains("rank=\"1\""));
    assert!(send(&second.pools()[0], 10).is_none(), "the engine has two");
    drop(held);
    assert_eq!(second.in_flight(), 0);
    assert!(!page(&second).contains("rank=\"1\""));
    assert!(send(&second.pools()[0], 10).is_some());
}

#[tokio::test]
async fn what_happened_at_an_engine_is_told_as_long_as_it_is_there() {
    let first = start(vec![pool("m", [1, 2])]);
    for endpoint in first.endpoints() {
        endpoint.note_failed_attempt("broke");
    }
    for _ in 0..6 {
        send(&first.pools()[0], 1).unwrap().faulted("broke off");
    }
    let families =
        ["kvasir_failed_attempts_total", "kvasir_breaker_transitions_total"].map(|name| {
            move |page: &str, url: &str| page.contains(&format!("{name}{{endpoint=\"{url}\""))
        });
    let stream = &first.endpoints()[0].streams()[0];
    stream.set_trust(kvasir_inventory::Trust::CatchingUp, "test");
    let url = &urls(&[1])[0];
    assert!(page(&first).contains(&format!("trust_transitions_total{{endpoint=\"{url}\"")));
    assert!(families.iter().all(|has| has(&page(&first), url)));
    let (second, _) = reload(&first, vec![pool("m", [2])]);
    while second.roster.reap().await {}
    let page = page(&second);
    assert!(!page.contains(url.as_str()), "an engine that left leaves nothing behind");
    assert!(families.iter().all(|has| has(&page, &urls(&[2])[0])));
}

/// A busy engine's quiet time, and a broken one's rest, end without anybody saying so.
#[tokio::test]
async fn who_waits_hears_when_a_quiet_time_or_a_rest_ends() {
    let open = Duration::from_millis(300);
    let breaker = crate::breaker::BreakerSettings { open, ..Default::default() };
    let health = HealthSpec { breaker, ..HealthSpec::default() };
    let mut spec = pool("m", [1, 2]);
    spec.admission = Some(at_most(1));
    for pressed in [true, false] {
        let spec = FleetSpec { health: health.clone(), ..fleet(vec![spec.clone()]) };
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
        let fleet = Fleet::start(spec, inventory).unwrap();
        let (pool, endpoints) = (&fleet.pools()[0], fleet.endpoints());
        // The scrape that finds nobody there is over.
        while endpoints.iter().any(|endpoint| endpoint.unreachable().is_none()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        endpoints.iter().for_each(|endpoint| endpoint.mark_reachable());
        if pressed {
            endpoints[0].press_back(open);
        } else {
            for _ in 0..3 {
                endpoints[0].send().settle(crate::breaker::Verdict::Fault, "broke off");
            }
        }
        let held = send(pool, 1).unwrap();
        assert!(Arc::ptr_eq(held.endpoint(), &endpoints[1]));
        let prompt =
            PromptTokens { prompts: None, count: 1, exact: false, adapter: None, salt: None };
        let attempt = || pool.choose("m", &pool.evidence(&prompt), &[]);
        let began = std::time::Instant::now();
        let door = pool.door().unwrap();
        let waits = door.admit(|| pool.members(), Asker::default(), attempt);
        let turn = tokio::time::timeout(Duration::from_secs(20), waits).await.expect("it hears");
        let chosen = turn.result.unwrap();
        assert!(Arc::ptr_eq(chosen.reservation.endpoint(), &endpoints[0]));
        assert!(turn.waited.is_some() && began.elapsed() < Duration::from_secs(10));
    }
}

/// Nothing is kept of endpoints that are not the pool's, however late they are chosen.
#[tokio::test]
async fn a_late_choice_leaves_nothing_behind() {
    let with = |engines: &[u16]| {
        let mut spec = pool("m", engines.iter().copied());
        spec.selection = SelectionSpec::of(PolicyKind::CacheAware);
        vec![spec]
    };
    let mut now = start(with(&[1]));
    for number in 2..20 {
        let old = Arc::clone(&now.pools()[0]);
        let (next, _) = reload(&now, with(&[1, number]));
        let late = send(&old, 50).unwrap();
        let mut later = send(&old, 50).unwrap();
        later.first_data(true);
        drop((late, later));
        now = next;
        let remembered = now.pools()[0].state().selecting.remembers();
        assert!(remembered <= 2, "{remembered} endpoints are remembered, of 2");
    }
}
