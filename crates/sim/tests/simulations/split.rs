//! Fleets that serve requests in two legs: by hand, and what must hold of any.

use std::time::Duration;

use kvasir_sim::{Fleet, HandOvers, Plans, Restart, Split, Synthetic, csv, json, simulate_fleets};

use super::*;

/// As [`simple`], with prefill and decode replicas, 5 ms and 200,000 tokens a second between them.
fn split(unified: usize, prefill: usize, decode: usize) -> Options {
    simple(0).with_fleet(Fleet { unified, prefill, decode })
}

#[test]
fn an_idle_split_fleet_takes_its_prefill_its_transfer_and_its_steps() {
    let asks = || workload(vec![asked(0.0, &[(1, 1_000)], 3)]);
    let report = play_one(&asks(), &split(0, 1, 1), "latency");
    assert_eq!(report.plans, Plans { split: 1, ..Plans::default() });
    // 0.5 ms to the prefill engine, 10 + 1,000 ms there; 0.5 ms to the decode engine, which fetches 1,000
    // tokens in 5 + 5 ms, and computes the last one again in 11 ms.
    let first = 0.5 + 1_010.0 + 0.5 + 10.0 + 11.0;
    close(report.ttft_ms.mean, first);
    close(report.e2e_ms.mean, first + 22.0);
    close(report.tpot_ms.mean, 11.0);
    assert!((report.itl_ms.p99 - 11.0).abs() < 0.011, "{:?}", report.itl_ms);
    close(report.itl_ms.mean, 11.0);
    assert_eq!(report.work_by_replica, [1_000, 1]);
    assert_eq!(report.requests_by_replica, [1, 1]);
    assert_eq!(report.hand_overs, HandOvers { tokens: 1_000, ..HandOvers::default() });
    // Everything about the transfer counts.
    let mut slow = split(0, 1, 1);
    slow.split =
        Split { transfer_time: Duration::from_millis(40), transfer_rate: 2_000.0, ..slow.split };
    close(play_one(&asks(), &slow, "round_robin").ttft_ms.mean, first - 10.0 + 540.0);
    // So slow that computing it anew is quicker: the decode engine does.
    let report = play_one(&asks(), &slow, "latency");
    assert_eq!(report.plans, Plans { decode_alone: 1, ..Plans::default() });
    close(report.ttft_ms.mean, 1_010.5);
}

#[test]
fn what_the_decode_engine_holds_does_not_travel_and_enough_of_it_needs_no_prefill() {
    // The second prompt is held by the decode engine whole but for its end; the third only by half.
    let requests = vec![
        asked(0.0, &[(1, 1_600)], 2),
        asked(5.0, &[(1, 1_600), (2, 16)], 2),
        asked(10.0, &[(1, 1_600), (3, 3_200)], 2),
    ];
    let report = play_one(&workload(requests), &split(0, 1, 1), "latency");
    assert_eq!(report.plans, Plans { split: 2, decode_alone: 1, ..Plans::default() });
    // The decode engine published what it fetched: it was expected to hold it.
    assert_eq!((report.over_predicted, report.under_predicted), (0, 0));
    assert_eq!(report.hand_overs.tokens, 1_600 + 3_200);
    assert_eq!(report.work_by_replica, [1_600 + 3_200, 1 + 16 + 1]);
    close(report.token_hit_rate, 3_200.0 / (1_600.0 + 1_616.0 + 4_800.0));
}

#[test]
fn prompts_do_not_delay_answers_of_others_where_they_are_split() {
    // An answer of 200 tokens, and a long prompt in the middle of it.
    let requests = || workload(vec![asked(0.0, &[(1, 160)], 200), asked(1.0, &[(2, 4_000)], 2)]);
    let mut whole = simple(1);
    whole.engine.max_num_batched_tokens = 8_192;
    let unified = play_one(&requests(), &whole, "latency");
    let apart = play_one(&requests(), &split(0, 1, 1), "latency");
    assert_eq!((unified.answered, apart.answered), (2, 2));
    // One gap is that of the prompt, 10 + 4,001 ms; another, 12 ms, that of both answers together.
    let gaps = 197.0 * 11.0 + 4_011.0 + 12.0;
    close(unified.tpot_ms.p99, gaps / 199.0);
    close(unified.itl_ms.mean, (gaps + 12.0) / 200.0);
    assert!(apart.itl_ms.p99 < 13.1, "{:?}", apart.itl_ms);
}

#[test]
fn every_request_is_answered_in_full_whatever_the_fleet() {
    const REQUESTS: usize = 40;
    let all = REQUESTS as u64;
    for synthetic in Synthetic::ALL {
        let requests = synthetic.generate(REQUESTS, 11);
        let tokens: u64 =
            requests.requests.iter().map(|asked| u64::from(asked.output_tokens)).sum();
        let prompts: u64 = requests.requests.iter().map(Asked::prompt_tokens).sum();
        let options = Options { time_scale: 6.0, gateways: 2, ..Options::default() };
        let fleets = [(4, 0, 0), (0, 2, 2), (0, 3, 1), (2, 1, 1), (0, 0, 4), (0, 1, 3)];
        let fleets = fleets.map(|(unified, prefill, decode)| Fleet { unified, prefill, decode });
        let names = ["latency", "round_robin", "precise_cache_aware"];
        let policies = names.map(policy);
        let comparison =
            simulate_fleets(&requests, &options, &fleets, &policies, &mut |_| {}).unwrap();
        assert_eq!(comparison.policies.len(), fleets.len() * policies.len());
        for report in &comparison.policies {
            let (fleet, plans) = (report.fleet, report.plans);
            assert_eq!(report.answered, all, "{synthetic} {fleet} {}", report.policy);
            assert_eq!(report.answer_tokens, tokens, "{synthetic} {fleet} {}", report.policy);
            let served = plans.split + plans.decode_alone + plans.unified + plans.no_prefill;
            assert_eq!(served, if fleet.splits() { all } else { 0 }, "{fleet}: {plans:?}");
            assert_eq!(plans.no_prefill > 0, fleet.splits() && fleet.prefill == 0, "{fleet}");
            // What was not found was computed once, and the last token of a prompt that travelled again.
            let computed = prompts as f64 * (1.0 - report.token_hit_rate) + plans.split as f64;
            assert!((report.work_tokens as f64 - computed).abs() < 0.5, "{fleet} {report:?}");
            assert_eq!(report.requests_by_replica.iter().sum::<u64>(), all + plans.split);
            let HandOvers { leases_expired, leases_left, .. } = report.hand_overs;
            assert_eq!((leases_expired, leases_left), (0, 0), "{fleet}");
        }
        let split = |fleet: Fleet| fleet.prefill > 0;
        let has_split = |report: &PolicyReport| split(report.fleet) && report.plans.split > 0;
        assert!(comparison.policies.iter().filter(|r| r.fleet.unified == 0).any(has_split));
    }
}

#[test]
fn the_same_arguments_give_the_same_output() {
    let requests = Synthetic::Agent.generate(50, 3);
    let fleets = [(8, 0, 0), (0, 4, 4), (4, 2, 2)].map(|(unified, prefill, decode)| Fleet {
        unified,
        prefill,
        decode,
    });
    let policies = ["latency", "round_robin"].map(policy);
    let texts = |seed: u64| {
        let mut options = Options { seed, time_scale: 8.0, gateways: 2, ..Options::default() };
        options.restarts = vec![Restart { replica: 1, at: 5.0, down: Duration::from_secs(2) }];
        let found = simulate_fleets(&requests, &options, &fleets, &policies, &mut |_| {}).unwrap();
        [json(&found), csv(&found), kvasir_sim::table(&found), kvasir_sim::plot(&found)]
    };
    let first = texts(1);
    assert_eq!(first, texts(1));
    assert_ne!(first, texts(2));
    let value: serde_json::Value = serde_json::from_str(&first[0]).unwrap();
    let apart = &value["fleets"]["4:4"];
    assert_eq!((&apart["prefill"], &apart["decode"]), (&4.into(), &4.into()));
    assert!(apart["policies"]["latency"]["plans"]["split"].as_u64().unwrap() > 0);
    assert!(apart["policies"]["latency"]["itl_ms"]["p99"].as_f64().unwrap() > 0.0);
    assert!(value["fleets"]["2:2+4"]["policies"]["round_robin"]["plans"]["unified"] != 0);
    assert!(value.get("policies").is_none());
    // A fleet of one kind is the same alone and beside others.
    let mut options = Options { time_scale: 8.0, gateways: 2, ..Options::default() };
    options.restarts = vec![Restart { replica: 1, at: 5.0, down: Duration::from_secs(2) }];
    let alone = csv(&play(&requests, &options, &["latency"]));
    assert_eq!(alone.lines().nth(1), first[1].lines().nth(1));
}

#[test]
fn engines_that_are_killed_lose_requests_and_leave_no_lease_behind() {
    // Long transfers, so that requests are caught in each leg.
    let mut options = split(0, 2, 2);
    options.split.transfer_rate = 2_000.0;
    options.split.lease = Duration::from_secs(3);
    let down = Duration::from_secs(2);
    let kill = |replica, at| Restart { replica, at, down };
    options.restarts = vec![kill(0, 2.05), kill(2, 4.3), kill(1, 6.5), kill(3, 8.2)];
    let requests = || {
        let one = |n: u32| asked(f64::from(n) * 0.2, &[(u64::from(n), 800)], 60);
        // The last one comes when all leases are over.
        let last = asked(60.0, &[(1_000, 800)], 1);
        workload((0..60).map(one).chain([last]).collect())
    };
    let mut expired = 0;
    for policy in ["latency", "round_robin"] {
        let report = play_one(&requests(), &options, policy);
        expired += report.hand_overs.leases_expired;
        let ends = report.answered + report.cut_off + report.failed + report.refused;
        assert_eq!(ends, 61, "{policy}");
        assert!(report.cut_off > 0 && report.retries > 0, "{policy}: {report:?}");
        assert!(report.answered > 30, "{policy}: {report:?}");
        assert_eq!(report.refused, 0, "{policy}");
        assert_eq!(report.hand_overs.leases_left, 0, "{policy}");
    }
    assert!(expired > 0);
}

#[test]
fn a_lease_that_is_too_short_is_no_good_anywhere() {
    let mut options = split(0, 1, 2);
    options.split.lease = Duration::from_millis(20);
    options.split.transfer_rate = 10_000.0;
    // Fetching takes 105 ms: both attempts come too late.
    let report = play_one(&workload(vec![asked(0.0, &[(1, 1_000)], 2)]), &options, "round_robin");
    assert_eq!((report.failed, report.hand_overs.leases_expired), (1, 2));
}

#[test]
fn transfers_nobody_told_of_are_learned() {
    // 500 tokens a second are no faster than computing: what decode engines can compute they should.
    let one = |n: u32| asked(f64::from(n) * 15.0, &[(u64::from(n), 4_000)], 2);
    let requests = workload((0..60).map(one).collect());
    let mut options = split(0, 1, 1);
    options.split.transfer_rate = 500.0;
    let told = play_one(&requests, &options, "latency");
    options.split.told = false;
    let learned = play_one(&requests, &options, "latency");
    assert!(learned.plans.split > told.plans.split, "{:?} {:?}", learned.plans, told.plans);
    assert!(learned.plans.decode_alone > 20, "{:?}", learned.plans);
}

#[test]
fn fleets_that_cannot_be_are_named() {
    let requests = Synthetic::Rag.generate(10, 1);
    let error = |fleet: Fleet, name: &str| {
        let options = Options::default();
        let found = simulate_fleets(&requests, &options, &[fleet], &[policy(name)], &mut |_| {});
        found.unwrap_err().to_string()
    };
    let fleet = |unified, prefill, decode| Fleet { unified, prefill, decode };
    assert!(error(fleet(0, 0, 0), "latency").contains("replicas is 0"));
    assert!(
        error(fleet(0, 4, 0), "latency").contains("fleet 4:0: there is no unified and no decode")
    );
    assert!(error(fleet(4, 1, 1), "lmetric").contains("`lmetric` is not a policy of Kvasir's own"));
}
