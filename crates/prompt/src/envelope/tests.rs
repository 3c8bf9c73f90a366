use proptest::prelude::*;

use super::*;

fn parse(body: &str) -> Result<Envelope, BodyError> {
    Envelope::parse(body.as_bytes())
}

#[test]
fn reads_the_fields() {
    let e = parse(
        r#"{"model":"m","stream":true,"max_tokens":5,"max_completion_tokens":7,"n":3,
            "cache_salt":"s","prompt_logprobs":0,"messages":[{"model":"inner","stream":false}]}"#,
    )
    .unwrap();
    assert_eq!(
        e,
        Envelope {
            model: Some("m".to_owned()),
            stream: true,
            max_tokens: Some(7),
            n: 3,
            cache_salt: Some("s".to_owned()),
            engine_extras: false,
            prompt_logprobs: true,
            previous_response_id: None,
            names: Names::default(),
            tools: false,
        }
    );
    assert_eq!(parse("{}").unwrap(), Envelope::default());
    assert_eq!(
        parse(r#"{"max_completion_tokens":null,"max_tokens":5}"#).unwrap().max_tokens,
        Some(5)
    );
}

#[test]
fn last_duplicate_wins_also_through_escapes() {
    let e = parse(r#"{"model":"a","mod\u0065l":"b","stream":true,"stream":false}"#).unwrap();
    assert_eq!(e.model.as_deref(), Some("b"));
    assert!(!e.stream);
    assert_eq!(parse(r#"{"model":"\u0071\ud83d\ude00"}"#).unwrap().model.as_deref(), Some("q😀"));
    assert_eq!(parse(r#"{"model":"a","model":null}"#).unwrap().model, None);
}

#[test]
fn wrong_types_count_as_absent_except_model() {
    let e = parse(
        r#"{"stream":{"a":1},"max_tokens":"x","n":-1,"cache_salt":7,"prompt_logprobs":[1],"model":null}"#,
    )
    .unwrap();
    assert_eq!(e, Envelope::default());
    for model in ["1", "[]", "{\"a\":\"b\"}", "true", "NaN", r#""\ud800""#] {
        let error = parse(&format!("{{\"model\":{model}}}")).unwrap_err();
        assert_eq!((error.message.as_str(), error.position), ("`model` must be a string", None));
    }
    let huge = "9".repeat(10_000);
    let e = parse(&format!(r#"{{"max_tokens":{huge},"n":{huge},"x":{huge},"y":1e999}}"#)).unwrap();
    assert_eq!((e.max_tokens, e.n), (None, 1));
    assert_eq!(parse(r#"{"max_tokens":16.0,"n":4294967296}"#).unwrap().max_tokens, Some(16));
}

#[test]
fn prompt_logprobs_follow_echo() {
    let asked = |body: &str| parse(body).unwrap().prompt_logprobs;
    assert!(asked(r#"{"echo":true,"logprobs":1,"prompt":"x"}"#));
    assert!(!asked(r#"{"echo":true,"prompt":"x"}"#));
    assert!(!asked(r#"{"logprobs":1,"prompt":"x"}"#));
    assert!(asked(r#"{"echo":true,"messages":[]}"#));
    assert!(!asked(r#"{"prompt_logprobs":null}"#));
}

#[test]
fn python_superset_is_tolerated() {
    let e = parse(r#"{"temperature":NaN,"a":[Infinity,-Infinity],"model":"m"}"#).unwrap();
    assert_eq!(e.model.as_deref(), Some("m"));
    let e = parse("\u{feff}{\"model\":\"m\"}").unwrap();
    assert_eq!(e.model.as_deref(), Some("m"));
}

#[test]
fn malformed_bodies_have_a_position() {
    let at = |body: &str| parse(body).unwrap_err().position;
    assert_eq!(at("{\"model\": \"m\",\n  \"n\": }"), Some((2, 8)));
    assert_eq!(at("{} x"), Some((1, 4)));
    assert_eq!(at("\u{feff}{} x"), Some((1, 4)));
    assert_eq!(at(""), Some((1, 1)));
    assert_eq!(at("[1"), Some((1, 1)));
    let error = parse("{\"a\":1,}").unwrap_err();
    assert!(error.message.ends_with("(line 1, column 8)"), "{}", error.message);
    assert_eq!(Envelope::parse(b"{\"a\":\"\xff\"}").unwrap_err().position, Some((1, 7)));
}

#[test]
fn body_must_be_an_object() {
    for body in ["[]", "1", "\"x\"", "null", " NaN "] {
        let error = parse(body).unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.position),
            ("The request body must be a JSON object", None)
        );
    }
}

#[test]
fn depth_never_refuses_or_overflows() {
    for depth in [500, 100_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let body = format!(
                "{{\"deep\":{}1{},\"model\":\"m\"}}",
                open.repeat(depth),
                close.repeat(depth)
            );
            assert_eq!(parse(&body).unwrap().model.as_deref(), Some("m"));
            // The same in a field that is read.
            let body = format!("{{\"n\":{}1{}}}", open.repeat(depth), close.repeat(depth));
            assert_eq!(parse(&body).unwrap().n, 1);
            // And unclosed.
            assert!(parse(&format!("{{\"deep\":{}", open.repeat(depth))).is_err());
        }
        assert!(parse(&"[".repeat(depth)).is_err());
    }
}

#[test]
fn every_truncation_is_an_error() {
    let body =
        r#"{"mod\u0065l":"m é \ud83d\ude00","x":[1,-2.5e3,{"a":null,"b":[true,false,NaN]}],"n":2}"#
            .as_bytes();
    assert!(Envelope::parse(body).is_ok());
    for end in 0..body.len() {
        assert!(Envelope::parse(&body[..end]).is_err(), "cut at {end}");
    }
}

proptest! {
    #[test]
    fn never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::parse(&body);
    }

    #[test]
    fn never_panics_on_json_like_text(body in "\\{[\\[\\]{}:,\"\\\\a-z0-9.+ -]{0,60}") {
        let _ = Envelope::parse(body.as_bytes());
    }

    #[test]
    fn finds_the_model_anywhere(
        name in ".*",
        before in prop::collection::btree_map("[a-z]{1,3}", any::<i64>(), 0..5),
        pretty in any::<bool>(),
    ) {
        let mut object = serde_json::Map::new();
        for (key, value) in before {
            object.insert(format!("x{key}"), value.into());
        }
        object.insert("model".into(), name.clone().into());
        object.insert("tail".into(), serde_json::json!([{"model": 1}]));
        let value = serde_json::Value::Object(object);
        let body = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        prop_assert_eq!(Envelope::parse(&body.unwrap()).unwrap().model, Some(name));
    }
}

#[test]
fn a_stored_response_is_named() {
    let id = |body: &str| Envelope::parse(body.as_bytes()).unwrap().previous_response_id;
    assert_eq!(
        id(r#"{"previous_response_id":"a","previous_response_id":"resp_1"}"#).as_deref(),
        Some("resp_1")
    );
    for none in [
        r#"{"previous_response_id":null}"#,
        r#"{"previous_response_id":""}"#,
        r#"{"previous_response_id":5}"#,
        "{}",
    ] {
        assert_eq!(id(none), None, "{none}");
    }
}

#[test]
fn sees_what_separates_prefixes_in_sglang_alone() {
    for (body, given) in [
        (r#"{"extra_key":"tenant"}"#, true),
        (r#"{"lora_path":"a"}"#, true),
        (r#"{"lora_path":["a",null]}"#, true),
        (r#"{"extra_key":null,"lora_path":null}"#, false),
        (r#"{"extra_key":"a","extra_key": null }"#, false),
        (r#"{"messages":[{"extra_key":"a"}]}"#, false),
    ] {
        assert_eq!(parse(body).unwrap().engine_extras, given, "{body}");
    }
}

#[test]
fn names_and_tools_are_seen_and_never_refused() {
    let e = parse(
        r#"{"user":"u","prompt_cache_key":7,"safety_identifier":null,
            "tools":[ {"type":"function"}],"metadata":{"user":"inner"}}"#,
    )
    .unwrap();
    let user = Name::Text("u".to_owned());
    assert_eq!(e.names, Names { user, prompt_cache_key: Name::NotText, ..Names::default() });
    assert!(e.tools);
    for none in [r#"{"tools":[ ]}"#, r#"{"tools":null}"#, r#"{"tools":{}}"#, "{}"] {
        assert!(!parse(none).unwrap().tools, "{none}");
    }
    assert!(parse(r#"{"functions":[1],"tools":[]}"#).unwrap().tools);
}
