//! Counters and refusals as engines write them.

use super::*;

#[test]
fn counters_of_all_ranks_are_added_up() {
    let page = "# HELP x\nvllm:prefix_cache_queries_total{engine=\"0\"} 100.0\n\
        vllm:prefix_cache_queries_total{engine=\"1\"} 20.0\n\
        vllm:prefix_cache_hits_total{engine=\"0\"} 48.0\n\
        vllm:external_prefix_cache_hits_total{engine=\"0\"} 9.0\n";
    let before = Counters::read(page).unwrap();
    let after = Counters::read(&page.replace("100.0", "151.0").replace("48.0", "96.0")).unwrap();
    assert_eq!(after.since(before), (51, 48));
    assert_eq!(before.since(after), (0, 0));
    assert_eq!(Counters::read("vllm:prefix_cache_hits_total 1.0\n"), None);
}

#[test]
fn refusals_are_one_short_line() {
    assert_eq!(message(br#"{"error":{"message":"no\nroom"}}"#), ": no\\nroom");
    assert_eq!(message(br#"{"detail":"Not Found"}"#), ": Not Found");
    for silent in [&b"<html>"[..], b"{}", b"[1]", b"{\"error\":7}", b""] {
        assert_eq!(message(silent), "");
    }
    let long = serde_json::json!({"message": "ä".repeat(5000)}).to_string();
    assert!(message(long.as_bytes()).chars().count() < 210);
}
