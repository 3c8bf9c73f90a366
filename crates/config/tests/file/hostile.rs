//! Texts that nobody writes by accident: values of every key replaced by other kinds, nesting,
//! aliases, numbers and lines without measure. Each is taken or its fault located, at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kvasir_config::Config;
use serde_json::{Value, json};

use crate::SMALL;
use crate::examples::{examples, is_located};

/// What one text may take, in a build without optimisation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes the text or says where its fault is.
fn judged(text: &str) {
    let begun = Instant::now();
    let result = Config::parse("f", text);
    let took = begun.elapsed();
    let head = || text.chars().take(400).collect::<String>();
    assert!(took < PATIENCE, "{took:?}: {}", head());
    match result {
        Ok(config) => {
            let written = config.to_yaml().unwrap();
            assert!(Config::parse("f", &written).is_ok(), "{}\n---\n{written}", head());
        }
        Err(error) => {
            assert!(is_located(&error, text), "{error:?}\n---\n{}", head());
            let said = error.to_string();
            assert!(said.len() < 16_384, "{} bytes of message: {}", said.len(), head());
        }
    }
}

/// The examples, and a file of sections that they do not have, with all defaults written out.
fn written_out() -> Vec<Value> {
    let written = |text: &str| {
        let yaml = Config::parse("f", text).unwrap().to_yaml().unwrap();
        serde_saphyr::from_str::<Value>(&yaml).unwrap()
    };
    let mut all: Vec<Value> = examples().iter().map(|(_, text)| written(text)).collect();
    let more = "listener: {http2: false}\nadmin: {}\ntracing: {otlp_endpoint: 'http://c:4318'}\n\
                decision_log: {directory: /tmp/d}\napi_keys_env: KEYS\nlog: {format: json}\n";
    all.push(written(&format!("{SMALL}{more}")));
    all
}

/// Where values stand, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found));
        }
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(n, value)| places(value, &format!("{at}/{n}"), found));
        }
        _ => {}
    }
}

#[test]
fn every_value_may_be_of_another_kind() {
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(u64::MAX),
        json!(1e308),
        json!(""),
        json!("\u{0}\u{feff}\u{2028}é\n"),
        json!([]),
        json!({}),
        json!([[{"": [null]}]]),
        json!({"name": {"name": []}}),
    ];
    // What another example, or another endpoint, has as well is tried once.
    let mut seen = BTreeSet::new();
    let mut tried = 0;
    for whole in written_out() {
        let mut found = Vec::new();
        places(&whole, "", &mut found);
        for place in found {
            let key: String = place.chars().filter(|c| !c.is_ascii_digit()).collect();
            if !seen.insert(key) {
                continue;
            }
            for other in &others {
                let mut changed = whole.clone();
                *changed.pointer_mut(&place).unwrap() = other.clone();
                judged(&changed.to_string());
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "{tried}");
}

#[test]
fn every_key_may_be_twice_there_or_misspelt() {
    for whole in written_out() {
        let text = whole.to_string();
        for (at, _) in text.match_indices("\":") {
            judged(&format!("{}x{}", &text[..at], &text[at..]));
            judged(&format!("{}\u{1f}{}", &text[..at], &text[at..]));
        }
    }
    judged(&format!("{SMALL}{SMALL}"));
}

#[test]
fn depth_is_bounded() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", ""), ("!!seq [", "]")] {
        for depth in [10, 1_000, 100_000] {
            let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            judged(&nested);
            judged(&format!("{SMALL}log: {nested}\n"));
            judged(&open.repeat(depth));
        }
    }
    let mut indented = String::new();
    for depth in 0..2_000 {
        indented.push_str(&format!("{}a:\n", " ".repeat(depth)));
    }
    judged(&indented);
}

#[test]
fn aliases_do_not_multiply() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let again = format!("*a{}, ", level - 1).repeat(9);
        laughs.push_str(&format!("a{level}: &a{level} [{again}]\n"));
    }
    judged(&laughs);
    judged(&format!("{laughs}{SMALL}"));
    judged(&format!("{SMALL}log: &l {{format: *l}}\n"));
    judged("pools: &p [*p]\n");
    judged(&format!("{SMALL}log: *nowhere\n"));
    judged(&format!("{SMALL}<<: *nowhere\n"));
    judged(&format!("{SMALL}<<: {{<<: {{<<: [1]}}}}\n"));
    let endpoint = "&e {url: 'http://a:1'}";
    judged(&format!("pools: [{{model: m, endpoints: [{endpoint}{}]}}]\n", ", *e".repeat(10_000)));
}

#[test]
fn numbers_have_any_size() {
    let digits = "9".repeat(100_000);
    for number in [
        "0",
        "-0",
        "007",
        "0x10",
        "0o17",
        "0b1",
        "1_000",
        "1e999",
        "-.inf",
        ".nan",
        "1.5",
        "+1",
        "340282366920938463463374607431768211456",
        "-9223372036854775809",
        "1:30",
        &digits,
        &format!("0x{digits}"),
        &format!("0.{digits}"),
        &format!("1e{digits}"),
    ] {
        for key in ["max_body_bytes", "scrape_interval_ms", "shutdown_grace_s", "listen"] {
            judged(&format!("{SMALL}{key}: {number}\n"));
        }
        judged(&format!("{SMALL}tracing: {{otlp_endpoint: 'http://c', sample_ratio: {number}}}\n"));
        judged(&format!("{SMALL}timeouts: {{connect_ms: {number}}}\n"));
    }
}

#[test]
fn lines_have_any_length() {
    let long = "a".repeat(1 << 20);
    for text in [
        long.clone(),
        format!("{SMALL}{long}: 1\n"),
        format!("{SMALL}log: {{level: {long}}}\n"),
        format!("{SMALL}log: {{format: {long}}}\n"),
        format!("{SMALL}listen: '{long}'\n"),
        format!("{SMALL}listen: \"{}\n", "\\x".repeat(1 << 19)),
        format!("{SMALL}log: {{ {}", " ".repeat(1 << 20)),
        format!("{SMALL}# {long}\n"),
        format!("{SMALL}{}", "\n".repeat(1 << 20)),
        format!("{SMALL}forward_paths: ['/{long}']\n"),
        format!("pools: [{{model: '{long}', endpoints: [{{url: 'http://{long}:1'}}]}}]\n"),
        format!("pools: [{{model: m, policy: {long}, endpoints: [{{url: 'http://a:1'}}]}}]\n"),
        format!("{SMALL}log: &{long} {{}}\n"),
        format!("{SMALL}log: !{long} {{}}\n"),
        format!("{SMALL}log: |\n  {long}\n"),
        "\t".repeat(1 << 20),
        "\u{0}".repeat(1 << 20),
        "---\n".repeat(1 << 16),
        "%YAML 9.9\n".repeat(1 << 12),
    ] {
        judged(&text);
    }
}
