use proptest::prelude::*;

use super::*;

fn dict(pairs: &[(&str, Json)]) -> Json {
    Json::Dict(Dict(pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()))
}

#[test]
fn plain_runs_end_where_they_should() {
    // Every byte at every place of a block, behind and before the others.
    for byte in 0..=u8::MAX {
        for at in 0..20 {
            for filler in [b'a', 0xC3, b' ', 0x7F, 0x80, b'!', b'[', b'#'] {
                let mut bytes = [filler; 27];
                bytes[at] = byte;
                let ends = matches!(byte, b'"' | b'\\' | 0..=0x1F);
                let want = if ends { at } else { 27 };
                assert_eq!(scan::plain_run(&bytes), want, "{byte} at {at} among {filler}");
            }
        }
    }
    assert_eq!(scan::plain_run(b"ab\"\\\x01"), 2);
    assert_eq!(scan::plain_run(b""), 0);
}

#[test]
fn python_values() {
    assert_eq!(parse("-0"), Ok(Json::Int(0)));
    assert_eq!(parse("-0.0").map(|j| format!("{j:?}")), Ok("Float(-0.0)".to_owned()));
    assert_eq!(parse("-Infinity"), Ok(Json::Float(f64::NEG_INFINITY)));
    assert!(matches!(parse("NaN"), Ok(Json::Float(f)) if f.is_nan()));
    assert_eq!(parse("1e999"), Ok(Json::Float(f64::INFINITY)));
    assert_eq!(parse("18446744073709551616"), Ok(Json::Int(1 << 64)));
    let digits = "9".repeat(60);
    assert_eq!(parse(&digits), Ok(Json::BigInt(digits.clone())));
    assert!(parse(&"9".repeat(MAX_INT_DIGITS + 1)).is_err());
    assert_eq!(parse(r#""\ud83d\ude00\u0041\/""#), Ok(Json::Str("😀A/".to_owned())));
}

#[test]
fn last_duplicate_wins_in_the_first_place() {
    let want = dict(&[("a", Json::Int(3)), ("b", Json::Int(2))]);
    assert_eq!(parse(r#"{"a":1,"b":2,"a":3}"#), Ok(want));
}

#[test]
fn refused_as_python_refuses_them() {
    for bad in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "'x'",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "nan",
        "tru",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"a\nb\"",
        "\"abc",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":}",
        "1 2",
        "\u{feff}1",
        "--1",
        "-",
        "\u{a0}1",
        "[",
        "{\"a\":[}",
        "Infinityx",
        "-NaN",
    ] {
        assert!(parse(bad).is_err(), "{bad:?} was accepted");
        let wrapped = format!("{{\"k\":{bad}}}");
        assert!(top_level(&wrapped, |_, _| Ok(())).is_err(), "{wrapped:?} was accepted");
    }
}

#[test]
fn half_surrogates_are_refused_when_built_and_skipped_otherwise() {
    assert!(parse(r#""\ud83d""#).is_err());
    assert!(parse(r#""\ude00\ud83d""#).is_err());
    assert_eq!(top_level(r#"{"a":"\ud83d"}"#, |_, _| Ok(())), Ok(()));
}

#[test]
fn depth_is_bounded_when_built_and_free_when_skipped() {
    let nest = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(&nest(MAX_DEPTH)).is_ok());
    assert_eq!(parse(&nest(MAX_DEPTH + 1)).map_err(|e| e.message), Err("nested too deeply"));
    let deep = format!("{{\"x\":{}}}", nest(100_000));
    assert_eq!(top_level(&deep, |_, _| Ok(())), Ok(()));
    let objects = format!("{{\"x\":{}1{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert_eq!(top_level(&objects, |_, _| Ok(())), Ok(()));
}

#[test]
fn positions_count_characters() {
    let text = "{\n \"é\": tru}";
    let error = top_level(text, |_, _| Ok(())).unwrap_err();
    assert_eq!(position(text.as_bytes(), error.offset), (2, 7));
    assert_eq!(position(b"ab", 99), (1, 3));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::vec((".*", inner), 0..6)
                .prop_map(|kv| serde_json::Value::Object(kv.into_iter().collect())),
        ]
    })
}

fn same(ours: &Json, theirs: &serde_json::Value) -> bool {
    match (ours, theirs) {
        (Json::Null, serde_json::Value::Null) => true,
        (Json::Bool(a), serde_json::Value::Bool(b)) => a == b,
        (Json::Int(a), b) => b.as_i64().map(i128::from) == Some(*a),
        (Json::Float(a), b) => b.as_f64() == Some(*a),
        (Json::Str(a), b) => b.as_str() == Some(a),
        (Json::List(a), serde_json::Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Dict(a), serde_json::Value::Object(b)) => {
            a.0.len() == b.len()
                && a.0.iter().zip(b).all(|((ka, va), (kb, vb))| ka == kb && same(va, vb))
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn reads_what_serde_json_writes(value in any_json()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let ours = parse(&text).map_err(|e| TestCaseError::fail(e.message))?;
            prop_assert!(same(&ours, &value), "{text}");
            prop_assert_eq!(top_level(&format!("{{\"k\":{text}}}"), |_, raw| {
                assert_eq!(raw, text);
                Ok(())
            }), Ok(()));
        }
    }

    #[test]
    fn skipping_accepts_exactly_what_building_accepts(text in "[\\[\\]{}:,\"\\\\a-eu0-9.+ -]{0,24}") {
        let wrapped = format!("{{\"k\":{text}}}");
        let mut whole = true;
        let skipped = top_level(&wrapped, |key, raw| {
            whole &= key == "k" && raw == text.trim_matches(' ');
            Ok(())
        });
        let built = parse(&text);
        // Text such as `1,"b":2` is no value but can stand in an object.
        if whole || built.is_ok() {
            let lone = matches!(&built, Err(e) if e.message.contains("surrogate"));
            prop_assert!(skipped.is_ok() == built.is_ok() || lone, "{} {:?} {:?}", text, skipped, built);
        }
    }

    #[test]
    fn never_panics(text in ".*") {
        let _ = parse(&text);
        let _ = top_level(&text, |_, _| Ok(()));
    }
}
