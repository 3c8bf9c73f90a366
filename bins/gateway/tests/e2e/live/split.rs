//! Two real servers that hand prompts over by NIXL, and the gateway before them.

use std::net::SocketAddr;
use std::path::Path;

use kvasir_testkit::client::{self, RawClient, Response};
use kvasir_testkit::live::LiveServer;
use serde_json::{Value, json};

use super::fleet::PATIENCE;
use super::traffic::prompt;
use crate::harness::{COMPLETIONS, Gateway};
use crate::split::{ids, plan, streamed, tokens};

const CHAT: &str = "/v1/chat/completions";

/// Prompts, each in four forms.
const PROMPTS: u32 = 20;

#[ignore = "needs real vLLM servers with NIXL"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_answers_are_those_of_one_engine() {
    let [mut prefill, mut decode] = [start("kv_producer"), start("kv_consumer")];
    for server in [&mut prefill, &mut decode] {
        server.until_up().await;
    }

    let gateway = gateway(&prefill, &decode).await;

    let before = external(decode.addr()).await;
    let mut prompt_tokens = 0;
    for n in 0..PROMPTS {
        for (path, body) in forms(n) {
            let split = ask(gateway.addr(), path, &body).await;
            assert_eq!(plan(&split), "split", "{n} {path}");
            let (answer, usage) = answer_of(&split);
            let (alone, told) = answer_of(&ask(prefill.addr(), path, &body).await);
            assert_eq!(answer, alone, "{n} {path} {body}");
            assert_eq!(answer.len(), 12);
            assert_eq!(usage["prompt_tokens"], told["prompt_tokens"]);
            prompt_tokens += usage["prompt_tokens"].as_u64().unwrap();
        }
    }
    let after = external(decode.addr()).await;
    let (queries, hits) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{} split requests of {prompt_tokens} prompt tokens: equal tokens; fetched {hits} of {queries}",
        PROMPTS * 4
    );
    // The engine that decodes computes the last token anew at least.
    assert!(hits == queries && hits > prompt_tokens * 9 / 10, "{hits} of {queries}");

    prefill.kill();
    for n in PROMPTS..PROMPTS + 3 {
        for (path, body) in forms(n) {
            let answer = ask(gateway.addr(), path, &body).await;
            let served = plan(&answer);
            println!("prefill engine killed: {path}, stream {}: {served}", body["stream"]);
            assert_ne!(served, "split");
            let alone = answer_of(&ask(decode.addr(), path, &body).await);
            assert_eq!(answer_of(&answer).0, alone.0, "{n} {path}");
        }
    }
    gateway.until_idle().await;
}

fn start(role: &str) -> LiveServer {
    let connector =
        json!({"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu"});
    let connector = connector.to_string();
    let args = ["--enable-prompt-tokens-details", "--kv-transfer-config", &connector];
    LiveServer::start(&args, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

async fn gateway(prefill: &LiveServer, decode: &LiveServer) -> Gateway {
    let endpoint = |server: &LiveServer, role: &str| {
        json!({"url": server.url(), "role": role, "events": server.publisher(),
               "replay": server.replay()})
    };
    let gateway = Gateway::over(json!({
        "model": "tiny",
        "endpoints": [endpoint(prefill, "prefill"), endpoint(decode, "decode")],
        // The first transfer has connections to make, on a machine that may be busy.
        "disaggregation": {"prefill_timeout_ms": 120_000, "decode_timeout_ms": 180_000},
    }))
    .await;
    gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], 2.0).await;
    gateway
}

/// A prompt that nobody has seen, as completion and as chat, whole and streamed.
fn forms(n: u32) -> Vec<(&'static str, Value)> {
    let asked = |member: u32| {
        let ids = prompt(600 + n, member);
        let words: Vec<String> = ids.iter().take(120).map(u32::to_string).collect();
        let body = json!({"model": "tiny", "max_tokens": 12, "temperature": 0, "ignore_eos": true,
                          "return_token_ids": true});
        let (mut completion, mut chat) = (body.clone(), body);
        // Not even a block in common with the prompts before it.
        completion["prompt"] =
            ids.iter().map(|id| (id + member * 31) % 3_900 + 100).collect::<Vec<u32>>().into();
        chat["messages"] =
            json!([{"role": "user", "content": format!("{member} {}", words.join(" "))}]);
        (completion, chat)
    };
    let ((completion, chat), (other, another)) = (asked(1), asked(2));
    vec![
        (COMPLETIONS, completion),
        (CHAT, chat),
        (COMPLETIONS, streamed(other)),
        (CHAT, streamed(another)),
    ]
}

async fn ask(addr: SocketAddr, path: &str, body: &Value) -> Response {
    let mut client = RawClient::connect(addr).await.unwrap().with_deadline(PATIENCE);
    let headers = [("content-type", "application/json")];
    client.send("POST", path, &headers, body.to_string().as_bytes()).await.unwrap();
    client.response().await.unwrap()
}

/// The tokens of an answer and its usage, streamed or not.
#[track_caller]
fn answer_of(response: &Response) -> (Vec<u64>, Value) {
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    if !text.starts_with("data: ") {
        return (tokens(response), response.json()["usage"].clone());
    }
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let (mut answer, mut usage) = (Vec::new(), Value::Null);
    for data in text.split("\n\n").filter_map(|event| event.strip_prefix("data: {")) {
        let chunk: Value = serde_json::from_str(&format!("{{{data}")).unwrap();
        answer.extend(ids(&chunk));
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
    }
    (answer, usage)
}

/// Tokens that the engine looked for elsewhere, and got.
async fn external(addr: SocketAddr) -> (u64, u64) {
    let page = client::get(addr, "/metrics").await.unwrap().text();
    let of = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0) as u64
    };
    (of("vllm:external_prefix_cache_queries_total{"), of("vllm:external_prefix_cache_hits_total{"))
}
