//! Which gateway is asked with which token, and what is said where that does not work.

use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use kvasir_testkit::pki::Authority;
use serde_json::json;

use super::Home;
use crate::admin::{Admin, READ, started, with_admin};
use crate::harness::{ConfigFile, Gateway, pool};

const CONFIG: &str = ".config/kvasir/ctl.yaml";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_win_over_the_environment_and_that_over_the_file() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let (gateway, admin, _file) = started(json!([pool("tiny", &[&engine])])).await;
    let home = Home::of(&admin);
    assert!(home.ok(&["get", "pools"]).await.contains("tiny"));
    // A port on which nobody listens.
    let nobody = "http://127.0.0.1:9";
    let mut command = home.command(&["get", "pools"]);
    command.env("KVASIR_ADMIN", nobody);
    let ran = home.finish(command).await;
    assert_eq!(ran.status, Some(1));
    for part in
        ["cannot connect to http://127.0.0.1:9", "from KVASIR_ADMIN", "--admin", "`admin:` in"]
    {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let url = format!("http://{}", admin.addr);
    let mut command = home.command(&["get", "pools", "--admin", &url]);
    command.env("KVASIR_ADMIN", nobody);
    assert_eq!(home.finish(command).await.status, Some(0));
    let error = home.fails(&["get", "pools", "--admin", nobody]).await;
    assert!(error.contains("from --admin"), "{error}");
    // The data port is no admin port.
    let data = format!("http://{}", gateway.addr());
    let error = home.fails(&["get", "pools", "--admin", &data]).await;
    assert!(error.contains("is no admin API") && error.contains("`admin.listen`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_kept_from_others_and_go_nowhere_else() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let (_gateway, admin, _file) = started(json!([pool("tiny", &[&engine])])).await;
    let home = Home::of(&admin);
    let url = format!("http://{}", admin.addr);
    // Readable by others: refused, with how to mend it.
    let text = std::fs::read_to_string(home.path(CONFIG)).unwrap();
    home.put(CONFIG, &text, 0o644);
    let error = home.fails(&["get", "pools"]).await;
    assert!(error.contains("mode 0644") && error.contains("chmod 600"), "{error}");
    home.put("token", READ, 0o640);
    let with_token = ["get", "pools", "--token-file", "token", "--admin", &url];
    home.put(CONFIG, &format!("admin: {url}\n"), 0o644);
    assert!(home.fails(&with_token).await.contains("chmod 600"));
    home.put("token", &format!("{READ}\n"), 0o600);
    home.ok(&with_token).await;
    // No token, a wrong one, one that may only read.
    let error = home.fails(&["get", "pools"]).await;
    assert!(error.contains("no token was sent") && error.contains("--token-file"), "{error}");
    home.put("token", "another-token-000", 0o600);
    let error = home.fails(&with_token).await;
    assert!(error.contains("the token is from token") && !error.contains("another"), "{error}");
    home.put("token", READ, 0o600);
    let name = engine.addr().to_string();
    let error = home.fails(&["weight", &name, "5", "--token-file", "token"]).await;
    assert!(error.contains("read only") && error.contains("write token"), "{error}");
    // The file's token is for the file's address.
    home.put(CONFIG, &format!("admin: http://127.0.0.1:9\ntoken: {READ}\n"), 0o600);
    let error = home.fails(&["get", "pools", "--admin", &url]).await;
    assert!(error.contains("is for http://127.0.0.1:9"), "{error}");
    // A file that is not understood repeats nothing.
    home.put(CONFIG, &format!("admn: {url}\ntoken: {READ}\n"), 0o600);
    let error = home.fails(&["get", "pools"]).await;
    assert!(error.contains("ctl.yaml") && !error.contains(READ), "{error}");
    // Relative names are beside the file.
    home.put(".config/kvasir/t", READ, 0o600);
    home.put(CONFIG, &format!("admin: {url}\ntoken_file: t\n"), 0o644);
    home.ok(&["get", "pools"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_names_no_gateway_is_told_how() {
    let home = Home::empty();
    let error = home.fails(&["get", "pools"]).await;
    for part in ["no gateway is named", "--admin", "KVASIR_ADMIN", ".config/kvasir/ctl.yaml"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = home.fails(&["get", "pools", "--config", "nowhere.yaml"]).await;
    assert!(error.contains("nowhere.yaml"), "{error}");
    let error = home.fails(&["get", "pools", "--admin", "http://user:hush@h:1"]).await;
    assert!(!error.contains("hush"), "{error}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(home.ok(&["completions", shell]).await.contains("kvasirctl"), "{shell}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_believed_by_the_given_authority_only() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"]);
    let (cert, key) = (ConfigFile::new(&identity.cert), ConfigFile::new(&identity.key));
    let mut config = with_admin(json!([pool("tiny", &[&engine])]));
    config["admin"]["tls"] = json!({"cert_file": cert.path(), "key_file": key.path()});
    let gateway = Gateway::start(config).await;
    let admin = Admin::of(&gateway).await;
    let home = Home::empty();
    home.put("ca.pem", authority.pem(), 0o644);
    home.put("other.pem", Authority::new().pem(), 0o644);
    let file = |ca: &str| {
        let text = format!("admin: https://{}\ntoken: {READ}\nca_file: {ca}\n", admin.addr);
        home.put(CONFIG, &text, 0o600);
    };
    file("../../ca.pem");
    assert!(home.ok(&["get", "pools"]).await.contains("tiny"));
    file("../../other.pem");
    let error = home.fails(&["get", "pools"]).await;
    assert!(error.contains("cannot connect to https://"), "{error}");
    home.ok(&["get", "pools", "--ca-file", "ca.pem"]).await;
    let plain = format!("http://{}", admin.addr);
    let error = home.fails(&["get", "pools", "--admin", &plain, "--ca-file", "ca.pem"]).await;
    assert!(error.contains("says no https"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_of_another_version_is_told_from_a_thing_that_is_not_there() {
    let other = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let home = Home::empty();
    let url = other.url();
    let error = home.fails(&["get", "parity", "--admin", &url]).await;
    assert!(error.contains("is no admin API"), "{error}");
    let document = json!({"info": {"title": "Kvasir admin API", "version": "0.0.1"}, "paths": {}});
    other.set_handler(move |asked| {
        let is_it = asked.path == "/api/v1/openapi.json";
        is_it.then(|| Reply::Json(StatusCode::OK, document.clone()))
    });
    let error = home.fails(&["get", "parity", "--admin", &url]).await;
    for part in ["version 0.0.1", "has no GET /api/v1/parity", "another version than this"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
