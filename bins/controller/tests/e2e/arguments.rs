//! What the controller refuses to start with, and that it stops when asked to.

use crate::harness::{File, advising, controller};

const REGISTRY: &str = "service: {key: m}\nhosts:\n  10.0.0.1: {gpu_model: G, hbm_gb: 1, role: unified, \
                        port: 80, ep_idx: 0, expected_num_gpu_blocks: 9, serving_throughput_prior: 1}\n";

#[tokio::test]
async fn a_registry_or_value_that_cannot_be_used_is_named() {
    let bad = File::new(&REGISTRY.replace("port: 80", "port: 0"));
    let good = File::new(REGISTRY);
    let (bad, good) = (bad.path().to_str().unwrap(), good.path().to_str().unwrap());
    for (args, status, wanted) in [
        (&["--registry", bad][..], 78, ":3:"),
        (&["--registry", "/nowhere.yaml"], 78, "/nowhere.yaml"),
        (&["--registry", good, "--alpha", "2"], 78, "--alpha: 2 is not above 0"),
        (&["--registry", good, "--epoch-s", "0"], 78, "--epoch-s: 0 is not above 0"),
        (&["--registry", good, "--token-file", good], 78, "a token has 8 to 512"),
        (&["--registry", good, "--gateway", "http://a"], 2, "--gateway-pool"),
        (&["--registry", good, "--grpc", "192.0.2.1:1"], 1, "cannot listen on 192.0.2.1:1"),
    ] {
        let mut process = controller(args);
        assert_eq!(process.ended().await, Some(status), "{args:?}: {}", process.log());
        let log = crate::harness::until(async || {
            let log = process.log();
            if log.contains(wanted) { Ok(log) } else { Err(log) }
        });
        log.await;
    }
}

#[tokio::test]
async fn it_stops_when_asked_to() {
    let (mut process, _) = advising(&File::new(REGISTRY), 0, &[]).await;
    process.terminate();
    assert_eq!(process.ended().await, Some(0));
}
