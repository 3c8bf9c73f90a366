//! Request shapes beyond plain prompts: how far each is known, where stored responses go, and that the
//! engine gets the client's bytes whatever they are.

use http::StatusCode;
use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply};
use serde_json::json;

use crate::harness::{CHAT, COMPLETIONS, Decision, Gateway, Golden, pool};

const BODIES: u64 = 1_000;

/// Made of a seed, as everything here.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let at = self.roll(from.len() as u64);
        from[usize::try_from(at).unwrap()]
    }

    fn space(&mut self, out: &mut String) {
        for _ in 0..self.roll(3) {
            out.push_str(self.pick(&[" ", "\t", "\n", "\r\n", "  "]));
        }
    }

    fn string(&mut self, out: &mut String) {
        out.push('"');
        for _ in 0..self.roll(6) {
            out.push_str(self.pick(&[
                "a",
                "\\n",
                "\\u00e9",
                "é",
                "\\ud83d\\ude00",
                "😀",
                "\\/",
                "\\\"",
                "\\u0000",
                "mode1",
                "\u{2028}",
                "<|im_end|>",
                "{\\\"model\\\":1}",
            ]));
        }
        out.push('"');
    }

    fn value(&mut self, depth: u64, out: &mut String) {
        match self.roll(if depth > 0 { 9 } else { 6 }) {
            0 => out.push_str(self.pick(&["null", "true", "false"])),
            1 => out.push_str(self.pick(&["0", "-0", "1", "18446744073709551616", "-1"])),
            2 => out.push_str(self.pick(&["1e400", "1.50", "0.1E-7", "-0.0", "1.0e+2"])),
            3 => {
                let digits = usize::try_from(self.roll(400) + 1).unwrap();
                out.push_str(&"9".repeat(digits));
            }
            4 | 5 => self.string(out),
            6 => {
                // Deep, without recursion.
                let deep = usize::try_from(self.roll(3_000)).unwrap();
                out.push_str(&"[".repeat(deep));
                out.push_str(&"]".repeat(deep));
                if deep == 0 {
                    out.push_str("{}");
                }
            }
            7 => {
                out.push('[');
                self.space(out);
                for i in 0..self.roll(4) {
                    if i > 0 {
                        out.push(',');
                    }
                    self.space(out);
                    self.value(depth - 1, out);
                    self.space(out);
                }
                out.push(']');
            }
            _ => self.object(depth - 1, &[], out),
        }
    }

    /// With these fields somewhere in it, and some twice.
    fn object(&mut self, depth: u64, wanted: &[(&str, &str)], out: &mut String) {
        let mut fields: Vec<String> =
            wanted.iter().map(|(k, v)| format!("\"{k}\"\t:{v}")).collect();
        for _ in 0..self.roll(5) {
            let mut field = String::new();
            match self.roll(3) {
                0 => self.string(&mut field),
                _ => field.push_str(self.pick(&["\"x\"", "\"tools\"", "\"n\"", "\"unknown\""])),
            }
            self.space(&mut field);
            field.push(':');
            self.space(&mut field);
            self.value(depth, &mut field);
            let at = usize::try_from(self.roll(fields.len() as u64 + 1)).unwrap();
            fields.insert(at, field);
        }
        self.space(out);
        out.push('{');
        for (i, field) in fields.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            self.space(out);
            out.push_str(field);
            self.space(out);
        }
        out.push('}');
        self.space(out);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_odd_bodies_arrive_byte_for_byte() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_default(Reply::Echo);
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    let mut client: RawClient = gateway.connect().await;
    let paths = [COMPLETIONS, CHAT, "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/score"];
    let mut refused = 0;
    for seed in 0..BODIES {
        let mut dice = Dice(seed);
        let prompt = if seed % 2 == 0 { ("prompt", "[1, 2,3]") } else { ("messages", "[{}]") };
        // The last of duplicate keys counts.
        let model = [("model", "\"other\""), prompt, ("model", "\"\\u0074iny\"")];
        let mut body = String::new();
        dice.object(4, &model, &mut body);
        let path = paths[usize::try_from(dice.roll(paths.len() as u64)).unwrap()];
        let kind = ("content-type", "application/json");
        client.send("POST", path, &[kind], body.as_bytes()).await.unwrap();
        let response = client.response().await.unwrap();
        assert_eq!(response.status, StatusCode::OK, "seed {seed}: {}", response.text());
        let same = response.body == body.as_bytes();
        assert!(same, "seed {seed}: sent {body:?}, came back {:?}", response.text());
        refused += u64::from(Decision::of(&response).level == "none");
    }
    assert!(refused > 0, "some of these are no prompts");
    let got = engine.requests();
    assert_eq!(got.len() as u64, BODIES, "each went once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shape_says_how_far_it_is_known() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_default(Reply::Echo);
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let hi = json!([{"role": "user", "content": "Hi"}]);
    let image =
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
    for (path, body, level, tokens) in [
        (COMPLETIONS, json!({"prompt": ["a", "b"]}), "tokens", "exact"),
        (CHAT, json!({"messages": hi}), "tokens", "exact"),
        (CHAT, json!({"messages": image}), "text", "multimodal"),
        (CHAT, json!({"messages": []}), "none", "body"),
        ("/v1/responses", json!({"input": "Hi"}), "tokens", "exact"),
        ("/v1/messages", json!({"messages": hi, "max_tokens": 5}), "tokens", "exact"),
        ("/v1/embeddings", json!({"input": "Hi"}), "tokens", "exact"),
        ("/v1/rerank", json!({"query": "a", "documents": ["b", "c"]}), "text", "pairs"),
        ("/tokenize", json!({"prompt": "a"}), "none", "unsupported_api"),
        (
            "/v1/responses",
            json!({"input": "x", "previous_response_id": "r"}),
            "none",
            "stored_response",
        ),
    ] {
        let mut body = body;
        body["model"] = "tiny".into();
        let decision = Decision::of(&gateway.post(path, &body).await);
        assert_eq!((&*decision.level, &*decision.tokens), (level, tokens), "{path} {body}");
    }
    let labels = [("level", "text"), ("tokens", "pairs")];
    gateway.until_metric("kvasir_prompts_total", &labels, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_goes_back_to_the_engine_that_stored_it() {
    let (one, two) = (
        FakeEngine::start(EngineConfig::default()).await.unwrap(),
        FakeEngine::start(EngineConfig::default()).await.unwrap(),
    );
    one.set_default(Reply::Json(StatusCode::OK, json!({"id": "resp_one", "object": "response"})));
    let event = json!({"response": {"id": "resp_two"}, "type": "response.created"});
    let stream = format!("event: response.created\ndata: {event}\n\n");
    two.set_default(Reply::Status(StatusCode::OK, http::HeaderMap::new(), stream.into()));
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("owners-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&log);
    let pools = [pool("tiny", &[&one, &two])];
    let gateway = Gateway::start(json!({"pools": pools, "decision_log": {"directory": log}})).await;
    let ask = |extra: Option<&str>| {
        let mut body = json!({"model": "tiny", "input": "Hi"});
        if let Some(id) = extra {
            body["previous_response_id"] = id.into();
        }
        body
    };
    let path = "/v1/responses";
    // Both have answered once.
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let decision = Decision::of(&gateway.post(path, &ask(None)).await);
        if !seen.contains(&decision.endpoint) {
            seen.push(decision.endpoint);
        }
    }
    for _ in 0..5 {
        for (id, engine) in [("resp_one", &one), ("resp_two", &two)] {
            let decision = Decision::of(&gateway.post(path, &ask(Some(id))).await);
            assert_eq!(decision.endpoint, engine.url(), "{id}");
            let decision = Decision::of(&gateway.get(&format!("{path}/{id}")).await);
            assert_eq!(decision.endpoint, engine.url(), "{id}");
        }
    }
    // Nobody known keeps it: an engine says so in its own words.
    assert_eq!(gateway.post(path, &ask(Some("resp_none"))).await.status, StatusCode::OK);
    // The other one is not called tried, and the first attempt is one.
    let file = log.join("tiny.00000001.jsonl");
    let logged = || std::fs::read_to_string(&file).unwrap_or_default();
    let of_owner = |line: &&str| line.contains(r#""exclusion":"not_owner""#);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while logged().lines().filter(of_owner).count() < 10 {
        assert!(std::time::Instant::now() < deadline, "{}", logged());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let text = logged();
    assert!(!text.contains(r#""exclusion":"tried""#) && !text.contains(r#""first_attempt":false"#));
    let _ = std::fs::remove_dir_all(&log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_names_its_model() {
    let serving =
        |model: &str| EngineConfig { models: vec![Model::base(model)], ..EngineConfig::default() };
    let speech = FakeEngine::start(serving("whisper")).await.unwrap();
    let text = FakeEngine::start(serving("tiny")).await.unwrap();
    for engine in [&speech, &text] {
        engine.set_default(Reply::Echo);
    }
    let pools = [("whisper", &speech), ("tiny", &text)].map(|(model, engine)| {
        json!({"model": model, "tokenizer_dir": Golden::staged(), "endpoints": [{"url": engine.url()}]})
    });
    let gateway = Gateway::start(json!({"pools": pools, "forward_paths": ["/v1/audio/*"]})).await;
    // Every engine has said what it serves.
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[("model", "tiny")], 1.0).await;
    let form =
        b"--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n\xff\x00\r\n\
        --x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--x--\r\n";
    let mut client = gateway.connect().await;
    let kind = ("content-type", "multipart/form-data; boundary=x");
    client.send("POST", "/v1/audio/transcriptions", &[kind], form).await.unwrap();
    let response = client.response().await.unwrap();
    assert_eq!((response.status, &response.body[..]), (200, &form[..]));
    assert_eq!(Decision::of(&response).endpoint, speech.url());
    assert!(text.requests().is_empty());
}
