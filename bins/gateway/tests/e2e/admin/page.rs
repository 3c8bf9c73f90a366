//! The status page: its files are everybody's, what they show is not.

use kvasir_testkit::client::Response;
use serde_json::json;

use super::started;
use crate::harness::{COMPLETIONS, Replica, completion, ids, pool};

const FILES: [(&str, &str); 7] = [
    ("/", "text/html; charset=utf-8"),
    ("/page/page.css", "text/css; charset=utf-8"),
    ("/page/page.js", "text/javascript; charset=utf-8"),
    ("/page/views.js", "text/javascript; charset=utf-8"),
    ("/page/dom.js", "text/javascript; charset=utf-8"),
    ("/page/chart.js", "text/javascript; charset=utf-8"),
    ("/page/words.js", "text/javascript; charset=utf-8"),
];

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.head.header(name).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_needs_no_token_and_its_data_does() {
    let replicas = Replica::several(1).await;
    let (_gateway, admin, _file) = started(json!([pool("tiny", &[&replicas[0].engine])])).await;
    let nobody = admin.with(None);
    for (path, kind) in FILES {
        let answer = nobody.ask("GET", path, b"").await;
        assert_eq!((answer.status, header(&answer, "content-type")), (200, kind), "{path}");
        assert_eq!(header(&answer, "cache-control"), "no-store", "{path}");
        assert_eq!(header(&answer, "x-content-type-options"), "nosniff", "{path}");
        let policy = header(&answer, "content-security-policy");
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        let length = answer.text().len().to_string();
        assert_eq!(header(&answer, "content-length"), length, "{path}");
        let head = nobody.ask("HEAD", path, b"").await;
        assert_eq!((head.status, header(&head, "content-type")), (200, kind), "{path}");
        assert_eq!(header(&head, "content-length"), length, "{path}");
        assert!(head.text().is_empty(), "{path}");
        assert_eq!(nobody.ask("POST", path, b"").await.status, 405, "{path}");
    }
    for path in ["/page/nope.js", "/page/..%2Fpage.rs", "/page/", "/index.html"] {
        assert_eq!(nobody.ask("GET", path, b"").await.status, 404, "{path}");
    }
    for path in ["pools", "parity", "timeline", "decisions"] {
        let path = format!("/api/v1/{path}");
        assert_eq!(nobody.ask("GET", &path, b"").await.status, 401, "{path}");
        let answer = admin.ask("GET", &path, b"").await;
        assert_eq!(answer.status, 200, "{path}");
        let policy = header(&answer, "content-security-policy");
        assert_eq!(policy, "default-src 'none'; frame-ancestors 'none'", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_timeline_counts_what_ended() {
    let replicas = Replica::several(1).await;
    let (gateway, admin, _file) = started(json!([pool("tiny", &[&replicas[0].engine])])).await;
    gateway.until_learned(&[&replicas[0]]).await;
    assert_eq!(admin.get("/api/v1/timeline").await["steps"], json!([]));
    for _ in 0..3 {
        gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
    }
    let sum = async |path: &str, part: &str| {
        let timeline = admin.get(path).await;
        let steps = timeline["steps"].as_array().unwrap();
        steps.iter().map(|step| step.pointer(part).unwrap().as_u64().unwrap()).sum::<u64>()
    };
    for path in ["/api/v1/timeline", "/api/v1/timeline?model=tiny"] {
        assert_eq!(sum(path, "/requests").await, 3, "{path}");
        assert_eq!(sum(path, "/failed").await, 0, "{path}");
        assert_eq!(sum(path, "/prompt_tokens").await, 192, "{path}");
        assert_eq!(sum(path, "/total_ms/count").await, 3, "{path}");
    }
    assert_eq!(sum("/api/v1/timeline?model=other", "/requests").await, 0);
}
