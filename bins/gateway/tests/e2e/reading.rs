//! What policies read of requests besides tokens: whose conversation it is, and texts.

use std::collections::BTreeSet;

use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply};
use serde_json::{Value, json};

use crate::harness::{CHAT, COMPLETIONS, Decision, Gateway, Replica, ids, pool};

/// A pool of two engines that takes turns, but for conversations.
async fn sticky(sessions: Option<Value>) -> (Gateway, Vec<Replica>) {
    let replicas = Replica::several(2).await;
    let mut pool = pool("tiny", &[&replicas[0].engine, &replicas[1].engine]);
    pool["policy"] = "round_robin".into();
    pool["sticky"] = json!({});
    if let Some(sessions) = sessions {
        pool["sessions"] = sessions;
    }
    let gateway = Gateway::over(pool).await;
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    (gateway, replicas)
}

async fn ask(gateway: &Gateway, headers: &[(&str, &str)], fields: &Value) -> Decision {
    let mut body = json!({"model": "tiny", "prompt": ids(1, 40), "max_tokens": 2});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let mut client = gateway.connect().await;
    let headers = [&[("content-type", "application/json")], headers].concat();
    client.send("POST", COMPLETIONS, &headers, body.to_string().as_bytes()).await.unwrap();
    Decision::of(&client.response().await.unwrap())
}

/// Asks four times in the name of each of two conversations: each stays with one engine, and the two
/// are not with one.
async fn two_conversations(
    gateway: &Gateway,
    a: (&[(&str, &str)], Value),
    b: (&[(&str, &str)], Value),
) {
    let mut taken = BTreeSet::new();
    for (headers, fields) in [a, b] {
        let first = ask(gateway, headers, &fields).await;
        assert_eq!(first.policy, "round_robin", "{headers:?} {fields}");
        for _ in 0..3 {
            let again = ask(gateway, headers, &fields).await;
            assert_eq!((&*again.policy, &again.endpoint), ("sticky", &first.endpoint));
        }
        taken.insert(first.endpoint);
    }
    assert_eq!(taken.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_are_named_in_the_body() {
    let (gateway, _replicas) = sticky(None).await;
    for field in ["user", "prompt_cache_key", "safety_identifier"] {
        two_conversations(&gateway, (&[], json!({field: "1"})), (&[], json!({field: "12"}))).await;
        let source = [("source", field)];
        gateway.until_metric("kvasir_sessions_total", &source, 8.0).await;
    }
    // Two tenants whose users have one name.
    let tenant = |salt: &str| json!({"user": "one name", "cache_salt": salt});
    two_conversations(&gateway, (&[], tenant("a")), (&[], tenant("b"))).await;
    // What is said for the cache's sake goes before who the user is, and a header before both.
    let both = json!({"prompt_cache_key": "1", "user": "1"});
    let by_key = ask(&gateway, &[], &both).await;
    assert_eq!(by_key.policy, "sticky");
    let header = [("x-session-id", "of the header")];
    assert_eq!(ask(&gateway, &header, &both).await.policy, "round_robin");
    assert_eq!(ask(&gateway, &header, &json!({})).await.policy, "sticky");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_are_named_by_a_cookie_where_the_pool_says_so() {
    let (gateway, _replicas) = sticky(Some(json!([{"cookie": "sid"}, {"header": "X-Chat"}]))).await;
    let (a, b) = ([("cookie", "theme=dark; sid=a")], [("cookie", "sid=b")]);
    two_conversations(&gateway, (&a, json!({"user": "u"})), (&b, json!({"user": "u"}))).await;
    let header = [("x-chat", "a")];
    assert_eq!(ask(&gateway, &header, &json!({})).await.policy, "round_robin");
    assert_eq!(ask(&gateway, &header, &json!({})).await.policy, "sticky");
    // Nothing else names one here.
    for _ in 0..2 {
        assert_eq!(
            ask(&gateway, &[("x-session-id", "a")], &json!({"user": "u"})).await.policy,
            "round_robin"
        );
    }
    gateway.until_metric("kvasir_sessions_total", &[("source", "cookie")], 8.0).await;
    gateway.until_metric("kvasir_sessions_total", &[("source", "none")], 2.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_do_not_count_are_counted_and_reach_the_engine() {
    let (gateway, replicas) = sticky(None).await;
    let long = "x".repeat(257);
    for (name, reason) in [(json!(7), "not_text"), (json!(long), "too_long")] {
        for _ in 0..2 {
            let decision = ask(&gateway, &[], &json!({"user": name})).await;
            assert_eq!(decision.policy, "round_robin");
        }
        let labels = [("source", "user"), ("reason", reason)];
        gateway.until_metric("kvasir_session_names_ignored_total", &labels, 2.0).await;
    }
    let body = br#"{ "user" : "\u0061", "model":"tiny" ,"prompt" :[1,2, 3],"max_tokens":1}"#;
    assert_eq!(gateway.post_bytes(COMPLETIONS, body).await.status, 200);
    let got = replicas.iter().flat_map(|replica| replica.engine.requests());
    assert_eq!(got.filter(|request| *request.body == body[..]).count(), 1);
}

/// Engines that publish nothing, of a model that has no tokenizer here.
async fn mute(count: usize) -> Vec<FakeEngine> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let models = vec![Model::base("plain")];
        let config = EngineConfig { models, ..EngineConfig::default() };
        let engine = FakeEngine::start(config).await.unwrap();
        // Else it says in its metrics how it cuts blocks.
        let nothing = Reply::Status(StatusCode::OK, http::HeaderMap::new(), "".into());
        engine.set_page("/metrics", nothing);
        engines.push(engine);
    }
    engines
}

fn chat(system: &str, asked: &str) -> Value {
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    json!({"model": "plain", "max_tokens": 2,
        "messages": [said("system", system), said("user", asked)]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_aware_goes_by_texts_where_there_is_no_tokenizer() {
    let engines = mute(3).await;
    let mut pool = pool("plain", &engines.iter().collect::<Vec<_>>());
    pool["policy"] = "cache_aware".into();
    pool["fallback"] = "round_robin".into();
    let gateway = Gateway::over(pool).await;
    let system = "All of these rules hold for all answers. ".repeat(50);
    let first = Decision::of(&gateway.post(CHAT, &chat(&system, "Why?")).await);
    assert_eq!((&*first.policy, &*first.level), ("round_robin", "none"));
    for asked in ["Why?", "And then?", "So what?"] {
        let body = serde_json::to_string_pretty(&chat(&system, asked)).unwrap();
        let again = Decision::of(&gateway.post_bytes(CHAT, body.as_bytes()).await);
        assert_eq!((&*again.reason, &again.endpoint), ("likely_prefix", &first.endpoint));
    }
    // What keeps two requests from sharing a cache keeps them from sharing this.
    for field in [
        json!({"cache_salt": "a"}),
        json!({"cache_salt": "b"}),
        json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ] {
        let mut body = chat(&system, "Why?");
        body.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        let other = Decision::of(&gateway.post(CHAT, &body).await);
        assert_eq!(other.policy, "round_robin", "{field}");
        let again = Decision::of(&gateway.post(CHAT, &body).await);
        assert_eq!((&*again.reason, again.endpoint), ("likely_prefix", other.endpoint));
    }
    let other =
        Decision::of(&gateway.post(CHAT, &chat(&system.replace("All", "None"), "Why?")).await);
    assert_eq!(other.policy, "round_robin");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_aware_goes_by_tokens_of_engines_that_do_not_say_how_they_cut_blocks() {
    let engines = mute(3).await;
    let mut pool = pool("plain", &engines.iter().collect::<Vec<_>>());
    pool["policy"] = "cache_aware".into();
    pool["fallback"] = "round_robin".into();
    let gateway = Gateway::over(pool).await;
    let body = |end: u32| {
        let prompt = [ids(1, 256), ids(end, 64)].concat();
        json!({"model": "plain", "prompt": prompt})
    };
    let first = Decision::of(&gateway.post(COMPLETIONS, &body(300)).await);
    assert_eq!((&*first.policy, &*first.tokens), ("round_robin", "exact"));
    for end in [400, 500] {
        let again = Decision::of(&gateway.post(COMPLETIONS, &body(end)).await);
        assert_eq!((&*again.reason, &again.endpoint), ("likely_prefix", &first.endpoint));
    }
    let text = json!({"model": "plain", "prompt": "word ".repeat(400)});
    let first = Decision::of(&gateway.post(COMPLETIONS, &text).await);
    assert_eq!(first.policy, "round_robin");
    let again = Decision::of(&gateway.post(COMPLETIONS, &text).await);
    assert_eq!((&*again.reason, again.endpoint), ("likely_prefix", first.endpoint));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_told_apart_by_tools_and_images_where_the_pool_says_so() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let image = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
    for (part, counts) in [("tools", true), ("tools", false), ("images", true), ("images", false)] {
        let engines = mute(2).await;
        let mut pool = pool("plain", &engines.iter().collect::<Vec<_>>());
        pool["policy"] = json!({"name": "consistent_hash", "key": {"by": "session", part: counts}});
        let gateway = Gateway::over(pool).await;
        let with = |is_there: bool, session: u32| {
            let mut body = chat("Be brief.", "Why?");
            body["user"] = session.to_string().into();
            match part {
                "tools" if is_there => body["tools"] = tools.clone(),
                "images" if is_there => body["messages"][1]["content"] = image.clone(),
                _ => {}
            }
            body
        };
        let mut moved = 0;
        // Each key has one of two homes: that all of them have the same by chance, does not happen.
        for session in 0..32 {
            let mut homes = Vec::new();
            for is_there in [false, true, false, true] {
                let decision = Decision::of(&gateway.post(CHAT, &with(is_there, session)).await);
                assert_eq!(decision.reason, "hashed");
                homes.push(decision.endpoint);
            }
            assert_eq!(homes[..2], homes[2..]);
            moved += u32::from(homes[0] != homes[1]);
        }
        assert_eq!(moved > 0, counts, "{part}: {moved} of 32 moved");
    }
}
