use serde_json::{Value, json};

use super::*;

fn read(text: &str) -> Result<Capture, CaptureError> {
    Capture::read(text.as_bytes())
}

fn one(line: &Value) -> Item {
    let mut capture = read(&line.to_string()).unwrap();
    assert_eq!(capture.lines.len(), 1, "{line}");
    capture.lines.remove(0).item
}

fn request(line: &Value) -> Request {
    match one(line) {
        Item::Request(request) => *request,
        other => panic!("{other:?}"),
    }
}

/// A completion of one prompt, with some fields as told.
fn completion(body: &Value, response: &Value) -> Value {
    json!({"kind": "request", "step": "s", "path": "/v1/completions", "status": 200, "body": body,
        "response": response})
}

fn usage(prompt: u64, cached: &Value) -> Value {
    json!({"usage": {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}})
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let good = r#"{"kind":"end","metrics":{}}"#;
    for (line, column, part) in [
        (r#"{"kind":"frames","frames_hex":["00""#, 35, "EOF"),
        (r#"{"kind":1}"#, 9, "expected a string"),
        (r#"["meta"]"#, 1, "not a JSON object"),
        (r#"{"step":"a"}"#, 1, "`kind` is missing"),
        (r#"{"kind":"frames"}"#, 1, "`frames_hex` is missing"),
        (r#"{"kind":"frames","frames_hex":["","0"]}"#, 1, "`frames_hex`[1] is not hexadecimal"),
        (r#"{"kind":"frames","frames_hex":["zz"]}"#, 1, "`frames_hex`[0] is not hexadecimal"),
        (r#"{"kind":"frames","frames_hex":["é1"]}"#, 1, "`frames_hex`[0] is not hexadecimal"),
        (r#"{"kind":"replay"}"#, 1, "`request_frames_hex` is missing"),
        (r#"{"kind":"replay","request_frames_hex":["00"]}"#, 1, "a number of 8 bytes"),
        (r#"{"kind":"replay","request_frames_hex":["0000000000000000"]}"#, 1, "`replies`"),
        (r#"{"kind":"link","state":"up"}"#, 1, "neither `connected` nor"),
        (r#"{"kind":"request","step":"a"}"#, 1, "`status` is missing"),
        (r#"{"kind":"meta","models":{"data":1}}"#, 1, "no answer of /v1/models"),
        ("{\"kind\":\"end\"} x", 16, "trailing characters"),
        ("\u{0}", 1, "not a JSON object"),
    ] {
        let error = read(&format!("{good}\n\n{line}\n{good}\n")).unwrap_err();
        let CaptureError::Line { line: at, column: found, why } = &error else {
            panic!("{line}: {error}")
        };
        assert_eq!(*at, 3, "{line}: {error}");
        assert!(why.contains(part), "{line}: {error}");
        assert!(found.abs_diff(column) <= 1, "{line}: {error}");
        assert!(!why.contains(" at line "), "{why}");
    }
    let twice = "{\"kind\":\"meta\"}\n{\"kind\":\"meta\"}";
    assert_eq!(read(twice).unwrap_err().to_string().split(": ").next(), Some("2:1"));
    assert!(read("\u{ff}\u{fe}").is_err());
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let error = Capture::read(&b"{\"kind\":\"end\"}\n\xff\xfe\n"[..]).unwrap_err();
    assert!(matches!(error, CaptureError::Line { line: 2, .. }), "{error}");
}

#[test]
fn what_means_nothing_here_is_skipped() {
    let text = "{\"kind\":\"verify\",\"ok\":null}\n{\"kind\":\"of tomorrow\",\"t\":\"x\"}\n";
    // A field that is known must be what it is, in any line.
    assert!(read(text).is_err());
    let capture = read(&text.replace(",\"t\":\"x\"", "")).unwrap();
    assert!(capture.lines.is_empty() && capture.meta.is_none());
    assert!(read("").unwrap().lines.is_empty());
}

#[test]
fn the_engine_is_told_by_the_meta_line() {
    let models = json!({"data": [
        {"id": "m", "root": "/m", "parent": null, "owned_by": "vllm"},
        {"id": "l", "root": "/l", "parent": "m"}]});
    let meta = json!({"kind": "meta", "version": "0.1", "server_version": {"version": "0.32.0"},
        "models": models, "block_size": "32"});
    let capture = read(&meta.to_string()).unwrap();
    let meta = capture.meta.unwrap();
    assert_eq!(meta.engine.as_deref(), Some("vllm 0.32.0"));
    assert_eq!(meta.card.base(), "/m");
    assert_eq!(meta.card.adapter("l").unwrap().path.as_deref(), Some("/l"));
    let bare = read("{\"kind\":\"meta\",\"models\":null}").unwrap().meta.unwrap();
    assert_eq!(bare.engine, None);
}

#[test]
fn frames_that_are_no_batch_are_kept_as_that() {
    let live = json!({"kind": "frames", "frames_hex": ["", "0000000000000007", "90"]});
    let Item::Live(Some(found)) = one(&live) else { panic!() };
    assert_eq!((found.seq, found.payload.as_slice()), (7, &[0x90][..]));
    let short = json!({"from": "decode", "frames_hex": ["07"]});
    assert!(matches!(one(&short), Item::Live(None)));
    let replay = json!({"kind": "replay", "request_frames_hex": ["", "0000000000000005"],
        "replies": [{"frames_hex": ["", "0000000000000005", "90"]}, {"frames_hex": ["05"]},
                    {"frames_hex": ["", "", "ffffffffffffffff", ""]}]});
    let Item::Replay(found) = one(&replay) else { panic!() };
    assert_eq!((found.from, found.batches().count(), found.ended), (5, 1, true));
}

#[test]
fn the_engines_own_token_ids_come_first() {
    let own = json!({"prompt_token_ids": [1, 2]});
    let chosen = json!({"choices": [{"prompt_token_ids": [3, 4]}]});
    let merged = |a: &Value, b: &Value| {
        let mut all = a.clone();
        all.as_object_mut().unwrap().extend(b.as_object().unwrap().clone());
        all
    };
    let told = usage(2, &json!(0));
    let ids = |line: Value| request(&line).comparable.map(|found| found.tokens);
    let body = json!({"prompt": [5, 6]});
    let both = merged(&merged(&own, &chosen), &told);
    assert_eq!(ids(completion(&body, &both)), Ok(vec![1, 2]));
    assert_eq!(ids(completion(&body, &merged(&chosen, &told))), Ok(vec![3, 4]));
    let mut line = completion(&body, &told);
    assert_eq!(ids(line.clone()), Ok(vec![5, 6]));
    line["tokenize"] = json!({"response": {"tokens": [7, 8]}});
    assert_eq!(ids(line), Ok(vec![7, 8]));
    assert_eq!(ids(completion(&json!({"prompt": [[9, 9]]}), &told)), Ok(vec![9, 9]));
    // As text, the way one recorder keeps it; and without a path.
    let mut line = completion(&body, &told.to_string().into());
    line.as_object_mut().unwrap().remove("path");
    assert_eq!(ids(line), Ok(vec![5, 6]));
}

#[test]
fn what_cannot_be_compared_says_why() {
    let told = usage(2, &json!(0));
    let why = |line: Value| request(&line).comparable.unwrap_err();
    assert_eq!(why(completion(&json!({"prompt": "a"}), &told)), "no_token_ids");
    assert_eq!(why(completion(&json!({"prompt": ["a", "b"]}), &told)), "several_prompts");
    assert_eq!(why(completion(&json!({"prompt": [[1], [2]]}), &told)), "several_prompts");
    assert_eq!(why(completion(&json!({"prompt": [1, 2, 3]}), &told)), "token_ids_differ");
    assert_eq!(why(completion(&json!({"prompt": [1, 2]}), &json!({}))), "no_usage");
    let mut failed = completion(&json!({"prompt": [1, 2]}), &told);
    failed["status"] = json!(500);
    assert_eq!(why(failed), "failed");
    let image = json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}]});
    let mut chat = completion(&image, &told);
    chat["path"] = json!("/v1/chat/completions");
    assert_eq!(why(chat), "multimodal");
    let mut embedding = completion(&json!({"input": "a"}), &told);
    embedding["path"] = json!("/v1/embeddings");
    assert_eq!(why(embedding), "unsupported_api");
}

#[test]
fn a_reset_counts_unless_it_was_refused() {
    let line = |status: u16, response: Value| {
        json!({"kind": "request", "path": "/reset_prefix_cache", "status": status, "body": null,
            "response": response})
    };
    assert!(request(&line(200, json!({"success": true}))).resets_cache);
    assert!(request(&line(200, json!(""))).resets_cache);
    assert!(!request(&line(200, json!({"success": false}))).resets_cache);
    assert!(!request(&line(404, json!("Not Found"))).resets_cache);
    assert_eq!(request(&line(200, json!(""))).api, None);
}
