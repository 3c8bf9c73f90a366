//! Where prompts get their tokens: headers, heads of long prompts, and the engines' own word on
//! ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::StatusCode;
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply, Tokenize};
use serde_json::{Value, json};

use crate::harness::{
    CHAT, COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool, pool_at, until,
};

const JSON: (&str, &str) = ("content-type", "application/json");
const OWN: &str = "x-kvasir-token-ids";
const ROLTER: &str = "x-rolter-vllm-token-ids";

fn list(ids: &[u32]) -> String {
    let texts: Vec<String> = ids.iter().map(u32::to_string).collect();
    texts.join(", ")
}

/// A request with one more header.
async fn with_header(gateway: &Gateway, header: (&str, &str), body: &Value) -> Decision {
    let mut client = gateway.connect().await;
    let body = body.to_string();
    client.send("POST", COMPLETIONS, &[JSON, header], body.as_bytes()).await.unwrap();
    Decision::of(&client.response().await.unwrap())
}

fn trusting(mut pool: Value) -> Value {
    pool["trust_token_headers"] = true.into();
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_a_header_are_the_prompts_where_the_pool_allows_it() {
    let replica = Replica::start().await;
    let gateway = Gateway::over(trusting(pool("tiny", &[&replica.engine]))).await;
    gateway.until_learned(&[&replica]).await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await.status, 200);
    gateway.until_blocks(&replica, 4).await;
    // The body says nothing of them, so what it holds is found by the header alone.
    let text = json!({"model": "tiny", "prompt": "some words", "max_tokens": 1});
    for name in [OWN, ROLTER] {
        let decision = with_header(&gateway, (name, &list(&ids(1, 64))), &text).await;
        let seen = (decision.overlap, decision.prompt, &*decision.level, &*decision.tokens);
        assert_eq!(seen, (48, 64, "tokens", "header"), "{name}");
        let got = replica.engine.wait_idle(SOON).await.pop().unwrap();
        assert_eq!((got.header(OWN), got.header(ROLTER)), ("", ""), "engines get neither");
        assert_eq!(got.body, text.to_string().as_bytes());
    }
    // One bad element, or none at all: as if it were not there.
    for bad in ["1,,2", "1,-2", "", "1;2", "4294967296"] {
        let decision = with_header(&gateway, (OWN, bad), &text).await;
        assert_eq!((&*decision.tokens, decision.overlap), ("exact", 0), "{bad:?}");
    }
    let labels = [("result", "malformed")];
    gateway.until_metric("kvasir_token_headers_total", &labels, 5.0).await;
    let line = gateway.access_line(|line| line["tokens"] == "header").await;
    assert_eq!((&line["level"], &line["token_source"]), (&json!("tokens"), &json!("header")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_headers_are_not_allowed_they_are_ignored_and_stay_here() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    for name in [OWN, ROLTER] {
        let decision = with_header(&gateway, (name, "9,9,9"), &completion(&[1, 2])).await;
        assert_eq!((&*decision.tokens, decision.prompt), ("exact", 2));
        let got = engine.wait_idle(SOON).await.pop().unwrap();
        assert_eq!((got.header(OWN), got.header(ROLTER)), ("", ""));
    }
    // Nor does it take heads of any length.
    let long = list(&ids(1, 150_000));
    let mut client = gateway.connect().await;
    let sent = client.send("POST", COMPLETIONS, &[JSON, (OWN, &long)], b"{}").await;
    // It may close before all of it was written.
    if sent.is_ok()
        && let Ok(response) = client.response().await
    {
        assert_eq!(response.status, 431);
    }
    assert_eq!(engine.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_the_engines_counts_do_not_bear_out_are_not_believed() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(trusting(pool("tiny", &[&engine]))).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let body = completion(&ids(1, 20));
    let ask =
        async |header: &[u32]| with_header(&gateway, (OWN, &list(header)), &body).await.tokens;
    let results = async |result, count| {
        let labels = [("result", result)];
        gateway.until_metric("kvasir_token_headers_total", &labels, count).await;
    };
    for n in 1..=8 {
        assert_eq!(ask(&[1, 2, 3]).await, "header", "{n}");
        results("differs", f64::from(n)).await;
    }
    gateway.until_metric("kvasir_token_headers_believed", &[], 0.0).await;
    let lines = "token ids in a header are not as many as the engine counts";
    let line = gateway.line("the first difference", |line| line.contains(lines)).await;
    assert!(line.contains("\"given\":3") && line.contains("\"reported\":20"), "{line}");
    // The body is what counts now; headers are held against the engine all the same.
    for n in 1..=13 {
        assert_eq!(ask(&ids(1, 20)).await, "exact", "{n}");
        results("agrees", f64::from(n)).await;
    }
    gateway.until_metric("kvasir_token_headers_believed", &[], 1.0).await;
    assert_eq!(ask(&ids(1, 20)).await, "header");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_has_room_for_a_long_prompt() {
    let models = vec![Model { max_model_len: Some(150_000), ..Model::base("tiny") }];
    let engine = FakeEngine::start(EngineConfig { models, ..EngineConfig::default() }).await;
    let engine = engine.unwrap();
    let pool = trusting(pool("tiny", &[&engine]));
    let config = json!({"pools": [pool], "max_prompt_bytes": 400_000});
    let gateway = Gateway::start(config).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    // In full, by its head, and for no more than the engine takes.
    for (given, counted, tokens) in
        [(100_000, 100_000, "header"), (120_000, 120_000, "head"), (200_000, 150_000, "head")]
    {
        let long = ids(100_000, given);
        let decision = with_header(&gateway, (ROLTER, &list(&long)), &completion(&[1])).await;
        assert_eq!((decision.prompt, &*decision.tokens), (counted, tokens));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_held_only_against_counts_of_the_prompt() {
    let models = vec![Model::base("tiny"), Model::adapter("ad", "tiny")];
    let engine = FakeEngine::start(EngineConfig { models, ..EngineConfig::default() }).await;
    let engine = engine.unwrap();
    let gateway = Gateway::over(trusting(pool("tiny", &[&engine]))).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let wrong = list(&ids(1, 50));
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]});
    let mut picture = chat.clone();
    // Part of the picture's place in the prompt is not in the list, or it is: both are right.
    picture["messages"][0]["content"] =
        json!([{"type": "text", "text": "Hello"}, {"type": "image_url", "image_url": {"url": ""}}]);
    let usage = json!({"usage": {"prompt_tokens": 7, "input_tokens": 7}});
    let mut adapted = completion(&[1, 2]);
    adapted["model"] = "ad".into();
    let broken = json!({"model": "tiny", "input": "Hello", "messages": chat["messages"]});
    let answers = [
        (CHAT, &picture, StatusCode::OK),
        (COMPLETIONS, &adapted, StatusCode::OK),
        ("/v1/responses", &broken, StatusCode::OK),
        ("/v1/messages", &broken, StatusCode::OK),
        (CHAT, &chat, StatusCode::BAD_REQUEST),
    ];
    let mut client = gateway.connect().await;
    for (path, body, status) in answers {
        engine.push([Reply::Json(status, usage.clone())]);
        let body = body.to_string();
        client.send("POST", path, &[JSON, (OWN, &wrong)], body.as_bytes()).await.unwrap();
        assert_eq!(client.response().await.unwrap().status, status, "{path}");
    }
    // One that can be judged.
    engine.push([Reply::Json(StatusCode::OK, usage)]);
    with_header(&gateway, (OWN, &wrong), &completion(&[1, 2])).await;
    let differs = [("result", "differs")];
    gateway.until_metric("kvasir_token_headers_total", &differs, 1.0).await;
    let lines = || async { (gateway.access_lines().len() == 6).then_some(()).ok_or(String::new()) };
    until(SOON, lines).await;
    assert_eq!(gateway.metrics().await.sum("kvasir_token_headers_total", &differs), Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_over_the_limit_is_routed_by_its_head() {
    let replica = Replica::start().await;
    let config = json!({"pools": [pool("tiny", &[&replica.engine])], "max_prompt_bytes": 65_536});
    let gateway = Gateway::start(config).await;
    gateway.until_learned(&[&replica]).await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await.status, 200);
    gateway.until_blocks(&replica, 4).await;

    // The engine's own work on what follows takes longer than a test waits.
    replica.engine.set_default(Reply::Json(StatusCode::OK, json!({})));
    // Megabytes of ids, of text, and of chat.
    let mut long = ids(1, 64);
    long.extend(ids(1_000, 3_000).repeat(100));
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&long)).await);
    let seen = (decision.overlap, decision.prompt, &*decision.level, &*decision.tokens);
    assert_eq!(seen, (64, 300_064, "text", "head"));

    let words = "many words that take their time ".repeat(250_000);
    let text = json!({"model": "tiny", "prompt": words, "max_tokens": 1});
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": words}]});
    let part = json!({"model": "tiny", "prompt": &words[..32_000]});
    let share = Decision::of(&gateway.post(COMPLETIONS, &part).await).prompt * 250;
    for (path, body) in [(COMPLETIONS, text), (CHAT, chat)] {
        let decision = Decision::of(&gateway.post(path, &body).await);
        assert_eq!((&*decision.level, &*decision.tokens), ("text", "head"), "{path}");
        let off = decision.prompt.abs_diff(share);
        assert!(off * 20 < share, "{path}: {} for {share}", decision.prompt);
    }
    gateway.until_metric("kvasir_prompts_total", &[("tokens", "head")], 3.0).await;
}

/// The staged tokenizer with another chat template.
fn with_template(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("e2e-template-{name}"));
    fs::create_dir_all(&dir).unwrap();
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/chat-models");
    for (file, from) in [
        ("tokenizer.json", "tokenizer.json".to_owned()),
        ("tokenizer_config.json", "chatml/tokenizer_config.json".to_owned()),
        ("chat_template.jinja", format!("{name}/chat_template.jinja")),
    ] {
        fs::copy(models.join(from), dir.join(file)).unwrap();
    }
    dir
}

/// An engine with a model's directory, and a gateway over it that compares tokens.
async fn compared(root: PathBuf, mode: &str) -> (SimServer, Gateway) {
    let root = Some(root);
    let model = "tiny".to_owned();
    let default = SimServerConfig::default();
    let config = SimServerConfig { model, root, events: None, replay: None, ..default };
    let server = SimServer::start(config).await.unwrap();
    let mut pool = pool_at("tiny", &[server.url()]);
    pool["token_parity"] = mode.into();
    let gateway = Gateway::over(pool).await;
    (server, gateway)
}

fn state<'a>(part: &'a str, state: &'a str) -> [(&'a str, &'a str); 2] {
    [("part", part), ("state", state)]
}

const PARITY: &str = "kvasir_tokenizer_parity";
const CHECKS: &str = "kvasir_tokenizer_parity_checks_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_tokens_are_held_against_the_engines_at_first_and_now_and_then() {
    let (server, gateway) = compared(with_template("chatml"), "sample").await;
    for part in ["tokenizer", "template"] {
        gateway.until_metric(PARITY, &state(part, "equal"), 1.0).await;
        gateway.until_metric(PARITY, &state(part, "different"), 0.0).await;
    }
    let equal = |part| [("part", part), ("result", "equal")];
    let before = gateway.metrics().await.sum(CHECKS, &equal("template")).unwrap();
    assert!(before >= 8.0, "{before} chats");
    let different = gateway.metrics().await.sum(CHECKS, &[("result", "different")]);
    assert_eq!(different, Some(0.0));
    // Then a request that came by; of more there is none for a while.
    let chat = json!({"model": "tiny", "max_tokens": 1, "top_p": 0.5, "unknown": [],
        "messages": [{"role": "user", "content": "Grüße"}]});
    for _ in 0..5 {
        let decision = Decision::of(&gateway.post(CHAT, &chat).await);
        assert_eq!((&*decision.level, &*decision.tokens), ("tokens", "exact"));
    }
    gateway.until_metric(CHECKS, &equal("template"), before + 1.0).await;
    let ready = gateway.get("/readyz").await.json();
    let parity = json!({"tokenizer": "equal", "template": "equal"});
    assert_eq!(ready["pools"]["tiny"]["tokenizer_parity"], parity);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_template_than_the_engines_is_said_and_costs_exactness() {
    let (server, gateway) = compared(with_template("phi"), "startup").await;
    gateway.until_metric(PARITY, &state("template", "different"), 1.0).await;
    gateway.until_metric(PARITY, &state("tokenizer", "equal"), 1.0).await;
    let chat = json!({"model": "tiny", "max_tokens": 1,
        "messages": [{"role": "user", "content": "Hello"}]});
    let decision = Decision::of(&gateway.post(CHAT, &chat).await);
    assert_eq!((&*decision.level, &*decision.tokens), ("text", "token_mismatch"));
    let text = json!({"model": "tiny", "max_tokens": 1, "prompt": "Hello"});
    let decision = Decision::of(&gateway.post(COMPLETIONS, &text).await);
    assert_eq!((&*decision.level, &*decision.tokens), ("tokens", "exact"));
    let line = gateway.line("an example", |l| l.contains("own tokens are not the engine's")).await;
    let line: Value = serde_json::from_str(&line).unwrap();
    for field in ["position", "own_id", "engine_id", "case", "endpoint"] {
        assert!(!line[field].is_null(), "{field} in {line}");
    }
    let loud = gateway.line("the verdict", |l| l.contains("own tokens differ")).await;
    assert!(loud.contains("ERROR"), "{loud}");
    let ready = gateway.get("/readyz").await.json();
    assert_eq!(ready["pools"]["tiny"]["tokenizer_parity"]["template"], "different");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_tells_no_tokens_is_left_unchecked_and_in_peace() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut pool = pool("tiny", &[&engine]);
    pool["token_parity"] = "sample".into();
    let gateway = Gateway::over(pool).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let asked = || engine.info_requests().iter().filter(|r| r.path == "/tokenize").count();
    until(SOON, || async { if asked() > 0 { Ok(()) } else { Err("not asked".to_owned()) } }).await;
    let text = json!({"model": "tiny", "prompt": "Hello", "max_tokens": 1});
    for _ in 0..3 {
        assert_eq!(Decision::of(&gateway.post(COMPLETIONS, &text).await).tokens, "exact");
    }
    assert_eq!(engine.requests().len(), 3);
    assert_eq!(asked(), 1, "one answer is enough");
    gateway.until_metric(PARITY, &state("tokenizer", "unchecked"), 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_with_a_salt_are_shown_to_no_other_engine() {
    // It makes something of every question, right or wrong.
    let tokenize = Some(Arc::new(|_: &Value| Some(vec![1_u32])) as Tokenize);
    let engine = FakeEngine::start(EngineConfig { tokenize, ..EngineConfig::default() }).await;
    let engine = engine.unwrap();
    let mut pool = pool("tiny", &[&engine]);
    pool["token_parity"] = "sample".into();
    let gateway = Gateway::over(pool).await;
    gateway.until_metric(PARITY, &state("template", "unchecked"), 0.0).await;
    let ask = async |prompt: &str, salt: Value| {
        let body = json!({"model": "tiny", "prompt": prompt, "cache_salt": salt, "max_tokens": 1});
        assert_eq!(gateway.post(COMPLETIONS, &body).await.status, 200);
    };
    ask("of a tenant", "secret".into()).await;
    // Had that been taken, this would come too soon.
    ask("of nobody", Value::Null).await;
    let asked = |prompt: &str| {
        let all = engine.info_requests();
        all.iter().any(|asked| asked.path == "/tokenize" && asked.json()["prompt"] == prompt)
    };
    let seen = || async { asked("of nobody").then_some(()).ok_or("not compared".to_owned()) };
    until(SOON, seen).await;
    assert!(!asked("of a tenant"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokenizer_cache_and_time_are_on_the_page() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let chat = json!({"model": "tiny", "messages": [
        {"role": "system", "content": "Be kind to them. ".repeat(40)},
        {"role": "user", "content": "Hello"}]});
    for _ in 0..3 {
        assert_eq!(gateway.post(CHAT, &chat).await.status, 200);
    }
    let page = gateway.metrics().await;
    let value = |name: &str| page.sum(name, &[("model", "tiny")]);
    assert_eq!(value("kvasir_prompt_cache_hits_total"), Some(2.0));
    assert_eq!(value("kvasir_prompt_cache_misses_total"), Some(1.0));
    assert_eq!(value("kvasir_tokenize_seconds_count"), Some(3.0));
    for positive in ["entries", "bytes", "budget_bytes", "saved_tokens_total", "hit_bytes_total"] {
        assert!(value(&format!("kvasir_prompt_cache_{positive}")) > Some(0.0), "{positive}");
    }
    let engine = page.label("kvasir_tokenizer_engine", &[], "engine");
    assert_eq!(engine, "byte_level");
    assert!(page.sum("kvasir_tokenizer_threads", &[]) >= Some(1.0));
    assert_eq!(page.sum("kvasir_tokenizer_threads_busy", &[]), Some(0.0));
}
