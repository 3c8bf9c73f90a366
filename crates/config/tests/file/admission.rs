//! What a pool takes at once, as it is configured.

use crate::parse;

#[test]
fn admission_is_off_by_default_and_has_bounds() {
    let with = |admission: &str| {
        format!("pools: [{{model: m, endpoints: [{{url: 'http://a'}}], admission: {admission}}}]")
    };
    let config = parse("pools: [{model: m, endpoints: [{url: 'http://a'}]}]").unwrap();
    let admission = &config.pools[0].admission;
    assert!(!admission.is_on());
    assert_eq!((admission.queue.places, admission.queue.max_wait().as_secs()), (0, 10));
    for text in ["{max_requests: 1}", "{endpoint: {max_kv_usage: 1}}", "{max_prefill_tokens: 9}"] {
        assert!(parse(&with(text)).unwrap().pools[0].admission.is_on(), "{text}");
    }
    let given = "{hold_ms: 500, tenant_header: X-Tenant-Id, queue: {places: 3}}";
    let admission = parse(&with(given)).unwrap().pools[0].admission.clone();
    assert_eq!((admission.is_on(), admission.hold().as_millis()), (true, 500));
    for (text, key) in [
        ("{max_requests: 0}", "admission.max_requests"),
        ("{max_prefill_tokens: 0}", "admission.max_prefill_tokens"),
        ("{endpoint: {max_requests: 0}}", "admission.endpoint.max_requests"),
        ("{endpoint: {max_prefill_tokens: 0}}", "admission.endpoint.max_prefill_tokens"),
        ("{endpoint: {max_kv_usage: 0}}", "admission.endpoint.max_kv_usage"),
        ("{endpoint: {max_kv_usage: 1.1}}", "admission.endpoint.max_kv_usage"),
        ("{endpoint: {max_kv_usage: .nan}}", "admission.endpoint.max_kv_usage"),
        ("{max_requests: 1, queue: {places: 100001}}", "admission.queue.places"),
        ("{queue: {places: 5}}", "admission.queue.places"),
        ("{queue: {max_wait_ms: 0}}", "admission.queue.max_wait_ms"),
        ("{hold_ms: 500}", "admission.hold_ms"),
        ("{hold_ms: 3600001, queue: {places: 1}}", "admission.hold_ms"),
        ("{max_requests: 1, queue: {places: 1}, tenant_header: 'a b'}", "admission.tenant_header"),
        ("{max_requests: 1, priority_header: x-p}", "admission.priority_header"),
        ("{max_requests: 1, places: 3}", "places"),
    ] {
        let error = parse(&with(text)).unwrap_err().to_string();
        assert!(error.contains(key), "{text}: {error}");
    }
}
