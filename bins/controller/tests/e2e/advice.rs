//! Three engines of speeds 1, 2 and 4 with caches of unlike sizes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvasir_engine_sim::server::SimServer;
use kvasir_testkit::client;

use crate::harness::{
    File, Gateway, address, advising, ask, engine, free_port, until, until_shown,
};

const SIZES: [(f64, usize); 3] = [(1.0, 1000), (2.0, 2000), (4.0, 4000)];

async fn engines() -> [SimServer; 3] {
    let [one, two, four] = SIZES;
    [engine(one.0, one.1, 0).await, engine(two.0, two.1, 0).await, engine(four.0, four.1, 0).await]
}

/// The engines with their priors; what is added to each, and whether their addresses are told.
fn registry(engines: &[SimServer; 3], more: [&str; 3], told: bool) -> String {
    let mut text = "service: {key: '10.0.0.1:80:tcp'}\nepoch_period_sec: 0.5\nhosts:\n".to_owned();
    for (place, ((speed, blocks), more)) in SIZES.into_iter().zip(more).enumerate() {
        let address = if told { "    address: 127.0.0.1\n" } else { "" };
        let port = address_port(&engines[place]);
        text += &format!(
            "  ep{place}:\n    gpu_model: G\n    hbm_gb: 1\n    role: unified\n    port: {port}\n{address}    \
             ep_idx: {place}\n    expected_num_gpu_blocks: {blocks}\n    serving_throughput_prior: {speed}\n{more}"
        );
    }
    text
}

fn address_port(engine: &SimServer) -> u16 {
    address(engine).port()
}

#[tokio::test]
async fn work_follows_capacity_and_is_even_again_without_the_controller() {
    let engines = engines().await;
    let file = File::new(&registry(&engines, [""; 3], true));
    let port = free_port();
    let gateway = Gateway::start(&[&engines[0], &engines[1], &engines[2]], "weighted", port).await;
    gateway.until_weights(&[100, 100, 100]).await;
    let (mut controller, metrics) = advising(&file, port, &[]).await;
    gateway.until_weights(&[25, 50, 100]).await;
    let spread = gateway.spread(280).await;
    for (engine, wanted) in engines.iter().zip([40, 80, 160]) {
        let got = spread[&engine.url()];
        assert!(got.abs_diff(wanted) * 10 <= wanted, "{got} of {wanted}: {spread:?}");
    }
    until_shown(metrics, "aictrl_acks_rejected_total{gateway=\"kvasir 127.0.0.1:0\"} 0").await;

    // Load goes on while the controller dies; no request is lost.
    let stop = Arc::new(AtomicBool::new(false));
    let (addr, stopping) = (gateway.addr, Arc::clone(&stop));
    let load = tokio::spawn(async move {
        let mut asked = 0;
        while !stopping.load(Ordering::Relaxed) {
            ask(addr, asked).await;
            asked += 1;
        }
        asked
    });
    let killed = Instant::now();
    controller.kill();
    gateway.until_weights(&[100, 100, 100]).await;
    // Three epochs to the deadline and a second of decay; the rest is for a busy machine.
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let status = client::get(gateway.admin, "/api/v1/controller").await.unwrap().json();
    assert_eq!(
        (&status["state"], &status["connected"]),
        (&"off_line".into(), &false.into()),
        "{status}"
    );

    // Another process, which counts its epochs from one.
    let _controller = advising(&file, port, &[]).await;
    gateway.until_weights(&[25, 50, 100]).await;
    stop.store(true, Ordering::Relaxed);
    assert!(load.await.unwrap() > 0);
}

#[tokio::test]
async fn an_engine_that_is_another_than_calibrated_falls_back_to_its_prior() {
    let [one, two, four] = engines().await;
    let engines = [one, two, four];
    let calibrated = "    calibration: {throughput_ratio: 3}\n";
    let file = File::new(&registry(&engines, [calibrated, "", ""], true));
    let port = free_port();
    let gateway = Gateway::start(&[&engines[0], &engines[1], &engines[2]], "weighted", port).await;
    let (controller, metrics) = advising(&file, port, &["--alpha", "1"]).await;
    gateway.until_weights(&[75, 50, 100]).await;
    let at = address_port(&engines[0]);
    let [one, ..] = engines;
    one.stop().await;
    let _other = engine(1.0, 900, at).await;
    until_shown(metrics, "aictrl_registry_mismatch_total{source=\"ep0\"} 1").await;
    gateway.until_weights(&[25, 50, 100]).await;
    assert!(controller.log().contains("registry_mismatch"), "{}", controller.log());
}

#[tokio::test]
async fn endpoints_are_drained_by_the_registry_and_never_all_of_them() {
    let engines = engines().await;
    let file = File::new(&registry(&engines, [""; 3], true));
    let port = free_port();
    let gateway = Gateway::start(&[&engines[0], &engines[1], &engines[2]], "weighted", port).await;
    let (_controller, metrics) = advising(&file, port, &[]).await;
    gateway.until_weights(&[25, 50, 100]).await;
    let until_states = async |wanted: [&str; 3]| {
        until(async || {
            let seen: Vec<String> =
                gateway.advised().await.into_iter().map(|(_, state)| state).collect();
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    };
    let (draining, disabled) = ("    state: draining\n", "    state: disabled\n");
    file.replace(&registry(&engines, ["", draining, disabled], true));
    until_states(["active", "draining", "disabled"]).await;
    for n in 0..6 {
        assert_eq!(gateway.ask(n).await, engines[0].url());
    }
    file.replace(&registry(&engines, [disabled; 3], true));
    until_states(["disabled"; 3]).await;
    for n in 0..6 {
        gateway.ask(n).await;
    }
    // A registry that cannot be used changes nothing.
    file.replace("hosts: 3\n");
    until_shown(metrics, "aictrl_registry_reload_failures_total 1").await;
    until_states(["disabled"; 3]).await;
    file.replace(&registry(&engines, [""; 3], true));
    until_states(["active"; 3]).await;
}

#[tokio::test]
async fn hosts_without_an_address_are_looked_up_at_the_gateway() {
    let engines = engines().await;
    let file = File::new(&registry(&engines, [""; 3], false));
    let port = free_port();
    let gateway = Gateway::start(&[&engines[0], &engines[1], &engines[2]], "weighted", port).await;
    let admin = format!("http://{}", gateway.admin);
    let (_controller, metrics) =
        advising(&file, port, &["--gateway", &admin, "--gateway-pool", "tiny"]).await;
    for source in ["ep0", "ep1", "ep2"] {
        until_shown(metrics, &format!("aictrl_source_unresolved{{source=\"{source}\"}} 0")).await;
        until_shown(metrics, &format!("aictrl_source_stale{{source=\"{source}\"}} 0")).await;
    }
    gateway.until_weights(&[25, 50, 100]).await;
    assert!(!gateway.process.log().contains("is rejected"), "{}", gateway.process.log());
}
