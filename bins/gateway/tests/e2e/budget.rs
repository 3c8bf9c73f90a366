//! The byte limits of the inventory, from the configuration to the metrics.

use serde_json::json;

use crate::harness::{
    BLOCK, COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool, until,
};
use kvasir_testkit::publisher::payload;

/// Publishes `prompts` prompts of 100 blocks each, none like another.
fn publish(replica: &Replica, first: u32, prompts: u32) {
    for prompt in first..first + prompts {
        let blocks = prompt * 100..(prompt + 1) * 100;
        let hashes: Vec<u64> = blocks.clone().map(u64::from).collect();
        let tokens: Vec<u32> = blocks.flat_map(|block| ids(block * BLOCK, BLOCK)).collect();
        let nothing = rmpv::Value::Array(vec![rmpv::Value::Nil; hashes.len()]);
        replica.publish(payload::stored(&hashes, None, &tokens).field("extra_keys", nothing));
    }
}

/// Waits until so many blocks were taken in, whether they are still there or not.
async fn learned(gateway: &Gateway, replica: &Replica, blocks: u32) {
    let url = replica.url();
    let labels = [("endpoint", &*url)];
    until(SOON, || async {
        let page = gateway.metrics().await;
        let resident = page.sum("kvasir_endpoint_resident_blocks", &labels).unwrap();
        let given_up = page.sum("kvasir_endpoint_blocks_given_up_total", &labels).unwrap();
        let all = resident + given_up;
        if all == f64::from(blocks) { Ok(()) } else { Err(format!("{resident} + {given_up}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_into_an_endpoints_bytes_is_given_up_and_said_to_be() {
    let replica = Replica::start().await;
    let config = json!({"pools": [pool("tiny", &[&replica.engine])],
        "inventory": {"max_endpoint_bytes": 65_536}});
    let gateway = Gateway::start(config).await;
    gateway.until_learned(&[&replica]).await;
    let value = async |name: &str| gateway.metrics().await.sum(name, &[]).unwrap();
    assert_eq!(value("kvasir_endpoint_blocks_given_up_total").await, 0.0);
    publish(&replica, 1, 50);
    learned(&gateway, &replica, 5000).await;
    gateway.until_trust(&replica, "partial(byte_budget)").await;
    let resident = gateway
        .metrics()
        .await
        .sum("kvasir_endpoint_resident_blocks", &[("tier", "device")])
        .unwrap();
    let given_up = value("kvasir_endpoint_blocks_given_up_total").await;
    assert!(resident > 100.0 && given_up > 1000.0, "{resident} {given_up}");
    assert!(value("kvasir_endpoint_inventory_bytes").await <= 65_536.0);
    // What is left is credited; what the engine stores now is learned.
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    assert_eq!((decision.overlap, &*decision.trust), (0, "partial(byte_budget)"));
    learned(&gateway, &replica, 5004).await;
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    assert_eq!((decision.overlap, &*decision.trust), (48, "partial(byte_budget)"));
    // An emptied cache is known whole again; the counter goes on.
    replica.publish(payload::cleared());
    gateway.until_trust(&replica, "exact").await;
    assert!(value("kvasir_endpoint_blocks_given_up_total").await >= given_up);
    assert_eq!(value("kvasir_endpoint_inventory_bytes").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_cut_back_for_others_says_so_though_it_is_silent() {
    let replicas = Replica::several(2).await;
    let engines: Vec<_> = replicas.iter().map(|replica| &replica.engine).collect();
    let config = json!({"pools": [pool("tiny", &engines)], "inventory": {"max_bytes": 2 << 20}});
    let gateway = Gateway::start(config).await;
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    let bytes = async || gateway.metrics().await.sum("kvasir_inventory_bytes", &[]).unwrap();
    assert_eq!(gateway.metrics().await.sum("kvasir_inventory_max_bytes", &[]), Some(2_097_152.0));
    let empty = bytes().await;
    // The first endpoint fills three quarters.
    let mut prompts = 0_u32;
    while bytes().await < empty + (2_097_152.0 - empty) * 0.75 {
        publish(&replicas[0], prompts, 20);
        prompts += 20;
        learned(&gateway, &replicas[0], prompts * 100).await;
    }
    gateway.until_trust(&replicas[0], "exact").await;
    let blocks = |page: &crate::harness::MetricsPage, replica: &Replica| {
        let labels = [("endpoint", &*replica.url()), ("tier", "device")];
        page.sum("kvasir_endpoint_resident_blocks", &labels).unwrap()
    };
    // A third is too much for both; the larger one pays, whose engine says nothing meanwhile.
    publish(&replicas[1], 1_000_000, prompts / 2);
    learned(&gateway, &replicas[1], prompts / 2 * 100).await;
    gateway.until_trust(&replicas[0], "partial(byte_budget)").await;
    gateway.until_trust(&replicas[1], "exact").await;
    let page = gateway.metrics().await;
    assert!(bytes().await <= 2_097_152.0);
    assert!(blocks(&page, &replicas[0]) < f64::from(prompts * 100));
    assert_eq!(blocks(&page, &replicas[1]), f64::from(prompts / 2 * 100));
    // Emptied, it is known whole again, and no number of others' can say otherwise.
    replicas[0].publish(payload::cleared());
    gateway.until_trust(&replicas[0], "exact").await;
}
