//! Metrics pages that take their time: what is on them of our own requests is nobody else's.

use std::time::Duration;

use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};

use crate::harness::{COMPLETIONS, Gateway, SOON, completion, pool, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_came_and_went_while_a_page_was_on_its_way_is_our_own() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    let pages = || engine.info_requests().iter().filter(|page| page.path == "/metrics").count();
    for _ in 0..5 {
        let text = "vllm:num_requests_waiting{engine=\"0\"} 1\n";
        let page = Reply::Status(StatusCode::OK, http::HeaderMap::new(), text.into());
        let before = pages();
        engine.set_page("/metrics", Reply::Delayed(Duration::from_millis(500), Box::new(page)));
        // The next one, which is slow unless it was asked for in this very moment.
        until(SOON, || async {
            let seen = pages();
            if seen > before { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
        engine.set_page("/metrics", None);
        assert_eq!(gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await.status, 200);
        let done = pages() + 2;
        // Until a page that was asked for later: on none of them anybody else is seen waiting.
        until(SOON, || async {
            let foreign = gateway.metrics().await.sum("kvasir_endpoint_foreign_waiting", &[]);
            assert_eq!(foreign, Some(0.0));
            let seen = pages();
            if seen >= done { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
    }
}
