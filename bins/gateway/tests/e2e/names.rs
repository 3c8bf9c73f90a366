//! Other names of models, and who is told how engines were chosen.

use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, ConfigFile, Gateway, pool};

const TOKEN: &str = "debug-token-0123456789";

async fn engine(names: &[&str]) -> FakeEngine {
    let models = names.iter().map(|name| Model::base(*name)).collect();
    let engine = FakeEngine::start(EngineConfig { models, ..EngineConfig::default() });
    let engine = engine.await.unwrap();
    engine.set_default(Reply::Echo);
    engine
}

fn asked(model: &str) -> Vec<u8> {
    // Blanks as no serialiser writes them: what arrives is what was sent.
    format!("{{\"model\":  \"{model}\", \"prompt\" : [1,2,3]}}").into_bytes()
}

fn tells(response: &Response) -> bool {
    assert_eq!(response.status, 200);
    let [endpoint, reason] =
        ["x-kvasir-endpoint", "x-kvasir-reason"].map(|name| response.head.header(name).is_some());
    assert_eq!(endpoint, reason);
    endpoint
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_answers_to_its_other_names_with_the_clients_own_bytes() {
    let (one, two) = (engine(&["tiny", "small"]).await, engine(&["other"]).await);
    let mut first = pool("tiny", &[&one]);
    first["aliases"] = json!(["small", "unserved"]);
    let config = json!({"pools": [first, pool("other", &[&two])]});
    let file = ConfigFile::of(&config);
    let gateway = Gateway::of_file(&file).await;
    gateway.until_known().await;
    let answer = gateway.post_bytes(COMPLETIONS, &asked("small")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(one.requests().last().unwrap().body, asked("small"));
    let line = gateway.access_line(|line| line["status"] == 200).await;
    assert_eq!(line["model"], "tiny", "one model, however it is called");

    // Engines that say they do not serve it are not asked.
    let answer = gateway.post_bytes(COMPLETIONS, &asked("unserved")).await;
    assert_eq!((answer.status, one.requests().len()), (503, 1));
    assert!(answer.text().contains("model_not_served"), "{}", answer.text());

    let models = gateway.get("/v1/models").await.json();
    let ids: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["tiny", "small", "unserved", "other"]);

    // A name can move to another pool.
    let mut second = pool("other", &[&two]);
    second["aliases"] = json!(["small"]);
    gateway.reload(&file, &json!({"pools": [pool("tiny", &[&one]), second]})).await;
    let answer = gateway.post_bytes(COMPLETIONS, &asked("small")).await;
    assert_eq!((answer.status, one.requests().len()), (503, 1), "`other`'s engine has it not");
    assert_eq!(gateway.post_bytes(COMPLETIONS, &asked("unserved")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_may_say_otherwise_whether_its_answers_tell_how_they_came_about() {
    let engine = engine(&["a", "b"]).await;
    let with = |model: &str, tells: Value| {
        let mut pool = pool(model, &[&engine]);
        pool["decision_headers"] = tells;
        pool
    };
    let config = json!({"pools": [with("a", json!(true)), with("b", Value::Null)],
        "decision_headers": false});
    let file = ConfigFile::of(&config);
    let gateway = Gateway::of_file(&file).await;
    gateway.until_known().await;
    assert!(tells(&gateway.post_bytes(COMPLETIONS, &asked("a")).await));
    assert!(!tells(&gateway.post_bytes(COMPLETIONS, &asked("b")).await));
    let config = json!({"pools": [with("a", json!(false)), with("b", Value::Null)],
        "decision_headers": true});
    gateway.reload(&file, &config).await;
    assert!(!tells(&gateway.post_bytes(COMPLETIONS, &asked("a")).await));
    assert!(tells(&gateway.post_bytes(COMPLETIONS, &asked("b")).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_turns_it_on_for_one_request_and_goes_no_further() {
    let engine = engine(&["tiny"]).await;
    let config = |token: Value| {
        json!({"pools": [pool("tiny", &[&engine])], "decision_headers": false,
            "decision_headers_token": token})
    };
    let file = ConfigFile::of(&config(json!(TOKEN)));
    let gateway = Gateway::of_file(&file).await;
    gateway.until_known().await;
    let ask = async |headers: &[(&str, &str)]| {
        let mut client = gateway.connect().await;
        client.send("POST", COMPLETIONS, headers, &asked("tiny")).await.unwrap();
        client.response().await.unwrap()
    };
    assert!(tells(&ask(&[("x-kvasir-debug", TOKEN)]).await));
    for shown in ["debug-token-012345678", "debug-token-0123456789x", "true", ""] {
        assert!(!tells(&ask(&[("x-kvasir-debug", shown)]).await), "{shown}");
    }
    assert!(!tells(&ask(&[]).await));
    gateway.reload(&file, &config(Value::Null)).await;
    assert!(!tells(&ask(&[("x-kvasir-debug", TOKEN)]).await));
    for request in engine.requests() {
        assert_eq!(request.header("x-kvasir-debug"), "");
    }
    assert!(!gateway.log_text().contains(TOKEN));
}
