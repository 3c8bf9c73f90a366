//! API keys of clients on the data port.

use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, ConfigFile, Gateway, SOON, pool, run_to_end, until};

const KEY: &str = "sk-first-0123456789";
const OTHER: &str = "sk-other-0123456789";

async fn engine() -> FakeEngine {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_default(Reply::Echo);
    engine
}

async fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut client = gateway.connect().await;
    let body: &[u8] = if method == "POST" { b"{}" } else { b"" };
    client.send(method, path, headers, body).await.unwrap();
    client.response().await.unwrap()
}

async fn status_with(gateway: &Gateway, key: &str) -> u16 {
    ask(gateway, "POST", COMPLETIONS, &[("authorization", &format!("Bearer {key}"))]).await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shows_no_known_key_is_told_how_and_goes_no_further() {
    let engine = engine().await;
    let config = json!({"pools": [pool("tiny", &[&engine])], "api_keys": [KEY, OTHER]});
    let gateway = Gateway::start(config).await;
    for (headers, challenge) in [
        (&[][..], "Bearer realm=\"kvasir\""),
        (&[("authorization", "Basic c2stZmlyc3Q6")], "Bearer realm=\"kvasir\""),
        (&[("authorization", "Bearer wrong")], "Bearer realm=\"kvasir\", error=\"invalid_token\""),
        (&[("x-api-key", "sk-first")], "Bearer realm=\"kvasir\", error=\"invalid_token\""),
    ] {
        for (method, path) in [
            ("POST", COMPLETIONS),
            ("GET", "/v1/models"),
            ("GET", "/metrics"),
            ("GET", "/nowhere"),
            ("OPTIONS", COMPLETIONS),
        ] {
            let response = ask(&gateway, method, path, headers).await;
            assert_eq!(response.status, 401, "{headers:?} {path}");
            assert_eq!(response.head.header("www-authenticate"), Some(challenge));
            let error = &response.json()["error"];
            assert_eq!(
                (&error["code"], &error["type"], &error["param"]),
                (&json!("invalid_api_key"), &json!("invalid_request_error"), &Value::Null)
            );
        }
    }
    assert_eq!(engine.requests().len(), 0);
    for path in ["/health", "/readyz"] {
        assert_ne!(ask(&gateway, "GET", path, &[]).await.status, 401, "probes have no key");
    }
    let page = ask(&gateway, "GET", "/metrics", &[("x-api-key", OTHER)]).await.text();
    let refused = page.lines().find(|line| {
        line.starts_with("kvasir_requests_total") && line.contains("outcome=\"invalid_api_key\"")
    });
    assert!(refused.is_some_and(|line| line.contains("status=\"401\"")), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_key_opens_the_gateway_and_goes_no_further() {
    let models = vec![Model::base("guarded"), Model::base("open")];
    let engine = FakeEngine::start(EngineConfig { models, ..EngineConfig::default() });
    let engine = engine.await.unwrap();
    engine.set_default(Reply::Echo);
    let mut guarded = pool("guarded", &[&engine]);
    guarded["api_key"] = "engine-key".into();
    let open = pool("open", &[&engine]);
    let gateway = Gateway::start(json!({"pools": [guarded, open], "api_keys": [KEY, OTHER]})).await;
    let bearer = format!("Bearer {OTHER}");
    for shown in [("authorization", &*bearer), ("x-api-key", KEY)] {
        for (model, expected) in [("guarded", "Bearer engine-key"), ("open", "")] {
            let both = [shown, ("x-model", model), ("content-type", "application/json")];
            assert_eq!(ask(&gateway, "POST", COMPLETIONS, &both).await.status, 200);
            let got = engine.wait_idle(SOON).await.pop().unwrap();
            assert_eq!((got.header("authorization"), got.header("x-api-key")), (expected, ""));
        }
    }
    gateway.access_line(|line| line["status"] == 200).await;
    let log = gateway.log_text();
    assert!(!log.contains(KEY) && !log.contains(OTHER), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_everybody_is_let_in_and_what_clients_show_passes() {
    let engine = engine().await;
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    let shown = [("authorization", "Bearer theirs"), ("x-api-key", "theirs")];
    assert_eq!(ask(&gateway, "POST", COMPLETIONS, &shown).await.status, 200);
    let got = engine.wait_idle(SOON).await.pop().unwrap();
    assert_eq!((got.header("authorization"), got.header("x-api-key")), ("Bearer theirs", "theirs"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_is_read_again_when_it_changes_and_a_bad_one_changes_nothing() {
    let engine = engine().await;
    let keys = ConfigFile::new(&format!("# clients\n\n{KEY}\n"));
    let config = json!({"pools": [pool("tiny", &[&engine])], "api_keys_file": keys.path()});
    let gateway = Gateway::start(config).await;
    assert_eq!((status_with(&gateway, KEY).await, status_with(&gateway, OTHER).await), (200, 401));
    std::fs::write(keys.path(), format!("{OTHER}\n")).unwrap();
    until(SOON, || async {
        let seen = (status_with(&gateway, KEY).await, status_with(&gateway, OTHER).await);
        if seen == (401, 200) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    std::fs::write(keys.path(), "# nobody\n").unwrap();
    let line = gateway.line("the reason", |line| line.contains("no key")).await;
    assert!(line.contains("what was read before stays"), "{line}");
    assert_eq!(status_with(&gateway, OTHER).await, 200);
    let page = ask(&gateway, "GET", "/metrics", &[("x-api-key", OTHER)]).await.text();
    for line in [
        "kvasir_api_keys_reloads_total{result=\"ok\"} 1",
        "kvasir_api_keys_reloads_total{result=\"failed\"} 1",
        "kvasir_api_keys_stale 1",
    ] {
        assert!(page.contains(line), "{line}:\n{page}");
    }
    assert!(!gateway.log_text().contains("sk-"), "no key in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_cannot_be_used_are_a_bad_configuration() {
    let bad = ConfigFile::new("good-enough-key\nhas blanks in it\n");
    let empty = ConfigFile::new("# none\n");
    for (keys, why) in [
        (json!({"api_keys": []}), "api_keys: there is no key".to_owned()),
        (
            json!({"api_keys": ["good-enough-key", "short"]}),
            "api_keys[1]: a key has 8 to 512".to_owned(),
        ),
        (json!({"api_keys": ["good-enough-key"], "api_keys_env": "X"}), "give one of".to_owned()),
        (
            json!({"api_keys_env": "KVASIR_TEST_NOT_SET"}),
            "api_keys_env: `KVASIR_TEST_NOT_SET`".to_owned(),
        ),
        (
            json!({"api_keys_file": "/nonexistent/keys"}),
            "api_keys_file: /nonexistent/keys: No such file".to_owned(),
        ),
        (json!({"api_keys_file": bad.path()}), format!("{}:2: a key has", bad.path().display())),
        (json!({"api_keys_file": empty.path()}), "there is no key".to_owned()),
    ] {
        let mut config =
            json!({"pools": [{"model": "m", "endpoints": [{"url": "http://127.0.0.1:1"}]}]});
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let file = ConfigFile::new(&config.to_string());
        let (status, text) =
            run_to_end([std::ffi::OsStr::new("--config"), file.path().as_os_str()]).await;
        assert_eq!(status, Some(78), "{keys}: {text}");
        assert!(text.contains(&why), "{keys}: {text}");
        assert!(!text.contains("short") && !text.contains("good-enough"), "{text}");
    }
}
