//! Generation requests: what they may ask for, and what they are told.

use kvasir_engine_sim::server::{SimServer, SimServerConfig, SimServerError};
use kvasir_testkit::client::{RawClient, get, post};
use serde_json::{Value, json};

use crate::common::{
    addr, ask, chunks, complete, fetch, metric, prompt, quick, send, slow, start, stream, testdata,
    until,
};

#[tokio::test]
async fn a_prompt_seen_before_is_cached() {
    let server = start(quick()).await;
    let cold = complete(&server, &prompt(1, 100), 5).await;
    assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(cold["usage"]["completion_tokens"], 5);
    assert_eq!(cold["choices"][0]["finish_reason"], "length");
    let warm = complete(&server, &prompt(1, 100), 5).await;
    assert_eq!(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 96);
    assert_eq!(warm["choices"][0]["text"], cold["choices"][0]["text"]);
    let stats = server.stats();
    assert_eq!((stats.prefix_queries, stats.prefix_hits, stats.finished), (200, 96, 2));
    assert_eq!(metric(&server, "vllm:prefix_cache_hits_total").await, 96.0);
    assert_eq!(metric(&server, "vllm:time_to_first_token_seconds_count").await, 2.0);
    assert_eq!(metric(&server, "vllm:generation_tokens_total").await, 10.0);
    let length = "vllm:request_success_total{engine=\"0\",finished_reason=\"length\"";
    assert_eq!(metric(&server, length).await, 2.0);
}

#[tokio::test]
async fn salts_and_adapters_keep_caches_apart() {
    let mut config = quick();
    config.adapters = vec![("one".into(), "/one".into()), ("two".into(), "/two".into())];
    let server = start(config).await;
    let cached = async |model: &str, salt: Value| {
        let body = json!({"model": model, "prompt": prompt(1, 100), "max_tokens": 1,
            "cache_salt": salt});
        let answer = ask(&server, "/v1/completions", &body).await;
        assert_eq!(answer["model"], model);
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    for expected in [0, 96] {
        assert_eq!(cached("tiny", Value::Null).await, expected);
        assert_eq!(cached("tiny", json!("a")).await, expected);
        assert_eq!(cached("one", Value::Null).await, expected);
        assert_eq!(cached("two", Value::Null).await, expected);
        assert_eq!(cached("two", json!("a")).await, expected);
    }
}

#[tokio::test]
async fn several_prompts_and_answers_are_numbered_choices() {
    let server = start(quick()).await;
    let body = json!({"model": "tiny", "prompt": [prompt(1, 40), prompt(2, 50)], "n": 2,
        "max_tokens": 3, "return_token_ids": true});
    let whole = ask(&server, "/v1/completions", &body).await;
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (i, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], i);
        assert_eq!(choice["token_ids"].as_array().unwrap().len(), 3);
        let length = choice["prompt_token_ids"].as_array().unwrap().len();
        assert_eq!(length, [40, 50][i / 2]);
    }
    assert_eq!(whole["usage"]["prompt_tokens"], 90);
    assert_eq!(whole["usage"]["completion_tokens"], 12);

    let mut client = stream(&server, "/v1/completions", &body).await;
    let mut streamed = vec![Vec::new(); 4];
    for chunk in chunks(&mut client).await {
        let choice = &chunk["choices"][0];
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        let first = streamed[index].is_empty();
        assert_eq!(choice["prompt_token_ids"].is_array(), first, "{chunk}");
        streamed[index].extend(choice["token_ids"].as_array().unwrap().clone());
        assert_eq!(choice["finish_reason"] == "length", streamed[index].len() == 3);
    }
    let same: Vec<_> = choices.iter().map(|c| c["token_ids"].as_array().unwrap().clone()).collect();
    assert_eq!(streamed, same);
}

#[tokio::test]
async fn streams_tell_usage_as_asked() {
    let server = start(quick()).await;
    let body = |options: Value| {
        json!({"model": "tiny", "prompt": prompt(1, 40), "max_tokens": 2,
        "stream_options": options})
    };
    let run =
        async |options| chunks(&mut stream(&server, "/v1/completions", &body(options)).await).await;
    let plain = run(Value::Null).await;
    assert_eq!(plain.len(), 2);
    assert!(plain.iter().all(|chunk| chunk.get("usage").is_none()));
    assert!(plain[0].get("system_fingerprint").is_none());
    assert!(plain[1]["system_fingerprint"].as_str().unwrap().starts_with("vllm-0.32.0-"));

    let end = run(json!({"include_usage": true})).await;
    assert_eq!(end.len(), 3);
    assert_eq!(end[2]["choices"], json!([]));
    let usage = json!({"prompt_tokens": 40, "total_tokens": 42, "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 32}});
    assert_eq!(end[2]["usage"], usage);

    let all = run(json!({"include_usage": true, "continuous_usage_stats": true})).await;
    let counts: Vec<_> = all.iter().map(|chunk| &chunk["usage"]["completion_tokens"]).collect();
    assert_eq!(counts, [1, 2, 2]);
}

#[tokio::test]
async fn ends_of_sequence_end_unless_ignored() {
    let mut config = quick();
    config.tokens.stop_one_in = 4;
    let server = start(config).await;
    let body = |ignore: bool| {
        json!({"model": "tiny", "prompt": prompt(1, 20),
        "max_tokens": 200, "ignore_eos": ignore})
    };
    let short = ask(&server, "/v1/completions", &body(false)).await;
    assert_eq!(short["choices"][0]["finish_reason"], "stop");
    assert!(short["usage"]["completion_tokens"].as_u64().unwrap() < 200);
    let long = ask(&server, "/v1/completions", &body(true)).await;
    assert_eq!(long["choices"][0]["finish_reason"], "length");
    assert_eq!(long["usage"]["completion_tokens"], 200);
}

#[tokio::test]
async fn chats_go_on_to_the_context_length() {
    let mut config = quick();
    config.root = Some(testdata("models/tiny"));
    config.max_model_len = 64;
    let server = start(config).await;
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = ask(&server, "/v1/chat/completions", &body).await;
    assert_eq!(answer["usage"]["total_tokens"], 64);
    body["max_completion_tokens"] = json!(3);
    body["max_tokens"] = json!(9);
    let answer = ask(&server, "/v1/chat/completions", &body).await;
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    body["messages"] = json!([{"role": "user", "content": "word ".repeat(100)}]);
    let response = send(&server, "/v1/chat/completions", &body).await;
    assert_eq!(response.status, 400);
    let error = &response.json()["error"];
    assert_eq!((&error["param"], &error["code"]), (&json!("input_tokens"), &json!(400)));
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let server = start(quick()).await;
    let with = |more: Value| {
        let mut body = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (more, word) in [
        (json!({"echo": true}), "echo"),
        (json!({"logprobs": 0}), "logprobs"),
        (json!({"prompt": "text"}), "no tokenizer"),
        (json!({"prompt": null}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [[1], []]}), "no tokens"),
        (json!({"prompt": [-1]}), "tokenizer"),
        (json!({"max_tokens": 0}), "at least 1"),
        (json!({"max_tokens": -5}), "at least 1"),
        (json!({"max_tokens": "many"}), "integer"),
        (json!({"n": 0}), "at least 1"),
        (json!({"n": 5000}), "sequences"),
        (json!({"cache_salt": ""}), "non-empty"),
        (json!({"stream": "yes"}), "boolean"),
        (json!({"stream_options": {"include_usage": true}}), "stream=True"),
        (json!({"prompt": prompt(1, 2_048)}), "context length"),
        (json!({"prompt": prompt(1, 2_000), "max_tokens": 100}), "context length"),
    ] {
        let response = send(&server, "/v1/completions", &with(more.clone())).await;
        assert_eq!(response.status, 400, "{more}");
        let error = &response.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(word), "{more}: {error}");
        assert_eq!((&error["type"], &error["code"]), (&json!("BadRequestError"), &json!(400)));
    }
    for body in ["", "[]", "{\"model\": ", "3"] {
        let response = post(addr(&server), "/v1/completions", body.as_bytes()).await.unwrap();
        assert_eq!(response.status, 400, "{body}");
    }
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(send(&server, "/v1/chat/completions", &chat).await.status, 400);
    assert_eq!(get(addr(&server), "/v1/completions").await.unwrap().status, 405);
    assert_eq!(get(addr(&server), "/nothing").await.unwrap().status, 404);
    let response =
        send(&server, "/v1/completions", &with(json!({"stop": ["x"], "tools": []}))).await;
    assert_eq!((response.status, response.head.header("x-sim-ignored")), (200, Some("stop")));
    assert_eq!(server.stats().finished, 1, "nothing of all this has reached the engine");
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let mut config = slow(0.5);
    config.engine.max_waiting = 2;
    let server = start(config).await;
    let body = json!({"model": "tiny", "prompt": [[1], [2], [3]], "max_tokens": 1});
    let response = send(&server, "/v1/completions", &body).await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["code"], 503);
    let body = json!({"model": "tiny", "prompt": [[1], [2]], "max_tokens": 1});
    assert_eq!(send(&server, "/v1/completions", &body).await.status, 200);
}

#[tokio::test]
async fn the_clients_id_is_kept() {
    let server = start(quick()).await;
    let body = json!({"model": "tiny", "prompt": [1], "max_tokens": 1}).to_string();
    let mut client = RawClient::connect(addr(&server)).await.unwrap();
    for (id, full) in [("my-req-1", Some("cmpl-my-req-1")), ("", None)] {
        let headers = [("x-request-id", id)];
        client.send("POST", "/v1/completions", &headers, body.as_bytes()).await.unwrap();
        let answer = client.response().await.unwrap().json();
        let got = answer["id"].as_str().unwrap();
        assert!(full.map_or(got.len() == "cmpl-".len() + 16, |full| got == full), "{got}");
    }
}

#[tokio::test]
async fn ranks_have_caches_of_their_own() {
    let server = start(SimServerConfig { ranks: 2, ..quick() }).await;
    let on = async |rank: &str| {
        let body = json!({"model": "tiny", "prompt": prompt(1, 100), "max_tokens": 1}).to_string();
        let mut client = RawClient::connect(addr(&server)).await.unwrap();
        let headers = [("x-data-parallel-rank", rank)];
        client.send("POST", "/v1/completions", &headers, body.as_bytes()).await.unwrap();
        client.response().await.unwrap()
    };
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    assert_eq!(cached(&on("0").await.json()), 0);
    assert_eq!(cached(&on("1").await.json()), 0);
    assert_eq!(cached(&on("0").await.json()), 96);
    let refused = on("7").await;
    let message = "data_parallel_rank 7 is out of range [0, 2).";
    let error = json!({"error": {"message": message, "type": "BadRequestError", "param": null,
        "code": 400}});
    assert_eq!((refused.status, refused.json()), (400, error));
    assert_eq!(on("-1").await.status, 400);
    assert_eq!(on("x").await.status, 400);
    let state = fetch(&server, "/sim/state").await;
    for rank in 0..2 {
        assert_eq!(state["ranks"][rank]["cached_blocks"].as_array().unwrap().len(), 6);
    }
    let sources = fetch(&server, "/kv_event_sources").await;
    assert_eq!(sources["0"]["endpoint"], server.events_endpoint().unwrap());
    assert!(sources["1"]["replay_endpoint"].is_string());
    assert_ne!(sources["0"]["endpoint"], sources["1"]["endpoint"]);
    assert!(metric(&server, "vllm:prefix_cache_queries_total{engine=\"1\"").await > 0.0);
}

#[tokio::test]
async fn requests_without_a_rank_are_spread() {
    let server = start(SimServerConfig { ranks: 2, ..slow(0.05) }).await;
    let body = json!({"model": "tiny", "prompt": [[1], [2], [3], [4]], "max_tokens": 1});
    ask(&server, "/v1/completions", &body).await;
    let state = fetch(&server, "/sim/state").await;
    assert_eq!(
        (&state["ranks"][0]["finished"], &state["ranks"][1]["finished"]),
        (&json!(2), &json!(2))
    );
}

#[tokio::test]
async fn a_reset_is_refused_while_something_runs() {
    let server = start(slow(0.01)).await;
    let reset = async |query: &str| {
        let path = format!("/reset_prefix_cache{query}");
        post(addr(&server), &path, b"").await.unwrap().json()["success"].clone()
    };
    let long = json!({"model": "tiny", "prompt": prompt(1, 100), "max_tokens": 1_000});
    let mut client = stream(&server, "/v1/completions", &long).await;
    client.event().await.unwrap();
    assert_eq!(reset("").await, false);
    assert_eq!(reset("?reset_running_requests=true").await, true);
    drop(client);
    until(async || server.stats().running, |running| *running == 0).await;
    assert_eq!(reset("").await, true);
    let state = fetch(&server, "/sim/state").await;
    assert_eq!(state["ranks"][0]["cached_blocks"], json!([]));
}

#[tokio::test]
async fn without_faults_there_is_no_way_in() {
    let server = start(SimServerConfig { faults: false, ..quick() }).await;
    assert_eq!(get(addr(&server), "/sim/state").await.unwrap().status, 404);
    assert_eq!(send(&server, "/sim/faults", &json!({"http": "hang"})).await.status, 404);
    assert_eq!(send(&server, "/sim/restart", &json!({})).await.status, 404);
}

#[tokio::test]
async fn settings_that_cannot_work_are_named() {
    let fails = async |config: SimServerConfig| SimServer::start(config).await.unwrap_err();
    let setting = async |config| match fails(config).await {
        SimServerError::Setting { name, .. } => name,
        other => panic!("{other}"),
    };
    assert_eq!(setting(SimServerConfig { version: "new".into(), ..quick() }).await, "version");
    assert_eq!(setting(SimServerConfig { ranks: 0, ..quick() }).await, "ranks");
    assert_eq!(setting(SimServerConfig { events: Some("x".into()), ..quick() }).await, "events");
    assert_eq!(setting(SimServerConfig { events: None, ..quick() }).await, "replay");
    let twice = vec![("tiny".to_owned(), "/x".to_owned())];
    assert_eq!(setting(SimServerConfig { adapters: twice, ..quick() }).await, "adapters");
    let config = SimServerConfig { max_model_len: 1, ..quick() };
    assert!(matches!(fails(config).await, SimServerError::Engine(_)));
    let config = SimServerConfig { root: Some("/nowhere".into()), ..quick() };
    assert!(matches!(fails(config).await, SimServerError::Tokenizer(_)));
    let first = start(quick()).await;
    let config = SimServerConfig { listen: addr(&first), ..quick() };
    assert!(matches!(fails(config).await, SimServerError::Listen { .. }));
    let config = SimServerConfig { events: first.events_endpoint(), ..quick() };
    assert!(matches!(fails(config).await, SimServerError::Bind { .. }));
}
