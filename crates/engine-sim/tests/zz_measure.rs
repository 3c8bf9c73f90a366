//! tmp
use kvasir_engine_sim::server::*;
use kvasir_engine_sim::*;
use kvasir_testkit::client::RawClient;
use std::time::Instant;
#[tokio::test]
async fn measure() {
    for ms in [0.3, 1.0, 5.0] {
        let mut config = SimServerConfig { model: "tiny".into(), ..Default::default() };
        config.engine.cost = CostModel {
            step_overhead: ms / 1e3,
            weights: 0.0,
            per_token: 0.0,
            per_context_token: 0.0,
            per_attention_pair: 0.0,
            speed: 1.0,
        };
        let server = SimServer::start(config).await.unwrap();
        let a = server.url()[7..].parse().unwrap();
        let mut c = RawClient::connect(a).await.unwrap();
        c.send(
            "POST",
            "/v1/completions",
            &[],
            br#"{"model":"tiny","prompt":[1,2,3],"max_tokens":1000,"stream":true}"#,
        )
        .await
        .unwrap();
        c.head().await.unwrap();
        let t = Instant::now();
        let mut last = t;
        let mut worst: Vec<f64> = vec![];
        c.event().await.unwrap();
        last = Instant::now();
        let first = last;
        let mut n = 0;
        while let Some(e) = c.event().await.unwrap() {
            if e == "[DONE]" {
                break;
            }
            n += 1;
            let now = Instant::now();
            worst.push((now - last).as_secs_f64() * 1e3);
            last = now;
        }
        worst.sort_by(f64::total_cmp);
        println!(
            "{ms} ms: {n} tokens, mean {:.3} ms, p50 {:.3} p99 {:.3} max {:.3}",
            (last - first).as_secs_f64() * 1e3 / n as f64,
            worst[n / 2],
            worst[n * 99 / 100],
            worst[n - 1]
        );
        server.stop().await;
    }
    // throughput: 200 streams
    let mut config = SimServerConfig { model: "tiny".into(), ..Default::default() };
    config.engine.cost = CostModel {
        step_overhead: 5e-3,
        weights: 0.0,
        per_token: 0.0,
        per_context_token: 0.0,
        per_attention_pair: 0.0,
        speed: 1.0,
    };
    let server = SimServer::start(config).await.unwrap();
    let a = server.url()[7..].parse().unwrap();
    let t = Instant::now();
    let hs: Vec<_> = (0..200u32)
        .map(|i| {
            tokio::spawn(async move {
                let mut c = RawClient::connect(a).await.unwrap();
                c.send(
                    "POST",
                    "/v1/completions",
                    &[],
                    format!(
                        r#"{{"model":"tiny","prompt":[{i},2,3],"max_tokens":200,"stream":true}}"#
                    )
                    .as_bytes(),
                )
                .await
                .unwrap();
                c.head().await.unwrap();
                while c.event().await.unwrap().is_some() {}
            })
        })
        .collect();
    for h in hs {
        h.await.unwrap();
    }
    println!(
        "200 streams x 200 tokens at 5 ms a step: {:?}, ideal 1 s; steps {}",
        t.elapsed(),
        server.stats().steps
    );
}
