//! E4's transcript, and what outlives a restart.

use serde_json::json;

use super::Home;
use crate::admin::{Admin, Scratch, with_admin};
use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e4s_transcript_works_and_settings_survive_a_restart() {
    let replicas = Replica::several(2).await;
    let engines = [&replicas[0].engine, &replicas[1].engine];
    let store = Scratch::new("ctl.redb");
    let mut tiny = pool("tiny", &engines);
    tiny["endpoints"][0]["group"] = json!("fast");
    tiny["endpoints"][1]["group"] = json!("large");
    let mut config = with_admin(json!([tiny]));
    config["admin"]["store"] = json!(store.path());
    let mut gateway = Gateway::start(config.clone()).await;
    let home = Home::of(&Admin::of(&gateway).await);
    gateway.until_known().await;

    let none = home.ok(&["routing", "stats", "tiny"]).await;
    assert_eq!(none, "Routing events: 0 · hit rate 0.0% · no decisions\n");
    assert!(home.fails(&["routing", "get", "tiny"]).await.contains("no routing settings"));
    // A new model starts as `round_robin`, and what is left out stays as it is.
    let set = home.ok(&["routing", "set", "tiny", "--slo-latency-ms", "500"]).await;
    assert_eq!(set, "Routing for tiny: round_robin\n");
    let set = home.ok(&["routing", "set", "tiny", "--mode", "cache_aware"]).await;
    assert_eq!(set, "Routing for tiny: cache_aware\n");
    let split = ["--disaggregate", "--prefill-pool", "fast", "--decode-pool", "large"];
    let set = home.ok(&[&["routing", "set", "tiny"][..], &split].concat()).await;
    assert_eq!(set, "Routing for tiny: cache_aware + disaggregated\n");
    let settings = home.json(&["routing", "get", "tiny"]).await;
    let expected = json!({"model": "tiny", "tenant": "default", "mode": "cache_aware",
        "slo_latency_ms": 500.0, "disaggregate": true, "prefill_pool": "fast",
        "decode_pool": "large", "updated_at": settings["updated_at"]});
    assert_eq!(settings, expected);
    // Refusals name the field; tenants are the gateway's matter.
    let error = home.fails(&["routing", "set", "tiny", "--prefill-pool", "none"]).await;
    assert!(error.contains("prefill_pool"), "{error}");
    let error = home.fails(&["routing", "set", "tiny", "--mode", "fastest"]).await;
    assert!(error.contains("round_robin, cache_aware"), "{error}");
    let error = home.fails(&["routing", "set", "tiny", "--tenant", "acme"]).await;
    assert!(error.contains("tenant: ") && error.contains("acme"), "{error}");
    let error = home.fails(&["routing", "set", "tinny", "--mode", "cache_aware"]).await;
    assert!(error.contains("did you mean `tiny`?"), "{error}");

    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    let gateway = Gateway::start(config).await;
    let home = Home::of(&Admin::of(&gateway).await);
    assert_eq!(home.json(&["routing", "get", "tiny"]).await, settings);
    let record = home.ok(&["routing", "stats", "tiny", "--tenant", "default"]).await;
    let expected = "model           tiny\nmode            cache_aware\nslo_latency_ms  500\n\
                    disaggregate    true\nRouting events: 0 · hit rate 0.0% · no decisions\n";
    assert_eq!(record, expected);
    let off = home.ok(&["routing", "set", "tiny", "--no-disaggregate"]).await;
    assert_eq!(off, "Routing for tiny: cache_aware\n");
    let reset = home.json(&["routing", "set", "tiny", "--reset", "slo-latency-ms"]).await;
    assert_eq!(reset["slo_latency_ms"], json!(null));
    home.ok(&["routing", "delete", "tiny"]).await;
    assert!(home.ok(&["routing", "get"]).await.contains("routed as configured"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simulations_print_e4s_two_rates() {
    let home = Home::empty();
    let shared = ["--replicas", "4", "--shared-prefix-requests", "100"];
    let told = home.ok(&[&["routing", "simulate", "org/m"][..], &shared].concat()).await;
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].contains("org/m") && lines[0].contains("100") && lines[0].contains('4'));
    assert_eq!(lines[1..], ["cache-aware hit rate: 99.0%", "round-robin hit rate: 96.0%"]);
    let document = home.json(&["routing", "simulate", "m", "--mode", "round_robin"]).await;
    let expected = json!({"cache_aware_hit_rate": 0.99, "round_robin_hit_rate": 0.96,
        "mode": "round_robin"});
    assert_eq!(document, expected);
    let error = home.fails(&["routing", "simulate", "m", "--replicas", "0"]).await;
    assert!(error.contains("--replicas") && error.contains("1 replica at least"), "{error}");
}

/// R5: persisted events feed the statistics of hits and decisions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_statistics_agree_with_the_decisions_made_and_survive_a_restart() {
    let replicas = Replica::several(2).await;
    let engines = [&replicas[0].engine, &replicas[1].engine];
    let store = Scratch::new("r5.redb");
    let mut config = with_admin(json!([pool("tiny", &engines)]));
    config["admin"]["store"] = json!(store.path());
    let mut gateway = Gateway::start(config.clone()).await;
    let home = Home::of(&Admin::of(&gateway).await);
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    home.ok(&["routing", "set", "tiny", "--mode", "cache_aware"]).await;
    // Two prompts, three times each, what each was told by its answer's headers.
    let (mut hits, mut affinity, mut requests) = (0, 0, 0);
    for first in [1, 901, 1, 901, 901, 1] {
        let body = completion(&ids(first, 64));
        let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
        requests += 1;
        hits += u64::from(decision.overlap > 0);
        affinity += u64::from(decision.reason == "longest_prefix");
        // Its blocks are known before it comes again.
        let held = 4 * (1 + u64::from(requests > 1));
        until(SOON, || async {
            let blocks = home.json(&["get", "inventory"]).await["blocks"].as_u64();
            if blocks == Some(held) { Ok(()) } else { Err(format!("{blocks:?}")) }
        })
        .await;
    }
    assert_eq!((hits, affinity), (4, 4));
    let stats = until(SOON, || async {
        let stats = home.json(&["routing", "stats", "tiny"]).await["stats"].clone();
        if stats["total"] == requests { Ok(stats) } else { Err(stats.to_string()) }
    })
    .await;
    assert_eq!(stats["hits"], hits);
    assert_eq!(stats["hit_rate"], json!(4.0 / 6.0));
    assert_eq!(stats["by_decision"], json!({"load_aware": 2, "affinity": 4}));
    // Single decisions say the same.
    let made = home.json(&["get", "decisions", "--model", "tiny"]).await;
    let made = made["decisions"].as_array().unwrap().clone();
    let held = made.iter().filter(|one| one["overlap"].as_u64() > Some(0)).count();
    assert_eq!((made.len() as u64, held as u64), (requests, hits));

    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    let gateway = Gateway::start(config).await;
    let home = Home::of(&Admin::of(&gateway).await);
    assert_eq!(home.json(&["routing", "stats", "tiny"]).await["stats"], stats);
    let counted = home.json(&["get", "stats"]).await;
    assert_eq!((&counted["requests"], &counted["hits"]), (&json!(requests), &json!(hits)));
    let told = home.ok(&["routing", "stats", "tiny"]).await;
    assert!(
        told.ends_with("Routing events: 6 · hit rate 66.7% · affinity 4, load_aware 2\n"),
        "{told}"
    );
    drop(gateway);
}
