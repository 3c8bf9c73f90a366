//! What is misspelt is suggested, and rolter's words are taken.

use crate::{SMALL, error, parse};

#[test]
fn a_misspelt_word_is_suggested_where_it_stands() {
    for (text, wanted) in [
        ("lisen: 1.2.3.4:5", ":2:1: unknown key `lisen`, did you mean `listen`?"),
        ("log: {fromat: json}", ":2:7: log: unknown key `fromat`, did you mean `format`?"),
        ("log: {format: jsno}", "unknown value `jsno`, did you mean `json`?"),
        ("admin: {readToken: x}", "unknown key `readToken`, did you mean `read_token`?"),
    ] {
        let message = error(&format!("{SMALL}{text}\n"));
        assert!(message.contains(wanted), "{message}");
    }
    let pool =
        |more: &str| format!("pools: [{{model: m, {more}, endpoints: [{{url: 'http://a'}}]}}]");
    for (more, wanted) in [
        ("polcy: latency", "unknown key `polcy`, did you mean `policy`?"),
        ("policy: roundrobin", "unknown policy `roundrobin`, did you mean `round_robin`?"),
        ("policy: {name: chwbi}", "unknown value `chwbi`, did you mean `chwbl`?"),
        ("identity: engin", "`engin` is neither `tokens` nor `engine`, did you mean `engine`?"),
        (
            "identity: {engine: {algorithm: sha256_cbr}}",
            "`sha256_cbr` is no hash algorithm, did you mean `sha256_cbor`?",
        ),
        ("zebra: 1", "unknown key `zebra`, expected one of model, aliases"),
    ] {
        let message = error(&pool(more));
        assert!(message.starts_with("kvasir.yaml:1:") && message.contains(wanted), "{message}");
    }
}

fn endpoint(more: &str) -> String {
    format!("pools:\n- model: m\n  endpoints:\n  - url: http://a\n    {more}\n")
}

#[test]
fn rolters_words_for_events_are_taken() {
    let both = "kv_events: {endpoint: 'tcp://b:1', topic: kv-events}\n    weight: 7";
    let config = parse(&endpoint(both)).unwrap();
    let ours = "events: 'tcp://b:1'\n    topic: kv-events\n    weight: 7";
    assert_eq!(config, parse(&endpoint(ours)).unwrap());
    let alone = parse(&endpoint("kv_events: {endpoint: 'tcp://b:1'}")).unwrap();
    assert_eq!(alone, parse(&endpoint("events: 'tcp://b:1'")).unwrap());
}

#[test]
fn rolters_words_without_an_equivalent_say_what_to_use() {
    let events = |more: &str| format!("kv_events: {{endpoint: 'tcp://b:1', {more}}}");
    for (text, wanted) in [
        (events("max_blocks: 5"), "bytes are limited by `inventory.max_endpoint_bytes`"),
        (events("stale_secs: 5"), "`stale_secs` has no equivalent"),
        (events("tpoic: x"), "unknown key `tpoic`, did you mean `topic`?"),
        ("kv_events: {topic: x}".to_owned(), "endpoint"),
        ("lmcache: {endpoint: 'http://l'}".to_owned(), "`lmcache` has no equivalent yet"),
        (events("topic: x") + "\n    events: 'tcp://c:1'", "duplicate field"),
        ("wieght: 3".to_owned(), "unknown key `wieght`, did you mean `weight`?"),
    ] {
        let message = error(&endpoint(&text));
        let located = ["kvasir.yaml:5:", "kvasir.yaml:6:", "kvasir.yaml:4:"];
        let located = located.iter().any(|place| message.starts_with(place));
        assert!(located && message.contains(wanted), "{text}: {message}");
    }
}
