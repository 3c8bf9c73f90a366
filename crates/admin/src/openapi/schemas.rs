//! What bodies and answers are.

use serde_json::{Map, Value, json};

/// A reference to a schema; `Any` is anything.
pub(super) fn named(name: &str) -> Value {
    if name == "Any" { json!({}) } else { json!({"$ref": format!("#/components/schemas/{name}")}) }
}

fn text() -> Value {
    json!({"type": "string"})
}

fn text_or_null() -> Value {
    json!({"type": ["string", "null"]})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn number_or_null() -> Value {
    json!({"type": ["number", "null"]})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn list(of: &Value) -> Value {
    json!({"type": "array", "items": of})
}

fn or_null(of: &Value) -> Value {
    json!({"anyOf": [of, {"type": "null"}]})
}

/// An object that has all of these keys, and may have others.
fn object(keys: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let required: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// An object that has some of these keys and no others.
fn patch(keys: &[(&str, Value)]) -> Value {
    let mut schema = object(keys);
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("required");
    }
    schema["additionalProperties"] = false.into();
    schema
}

/// All schemas by name.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    for (name, schema) in errors().into_iter().chain(fleet()).chain(changes()).chain(reports()) {
        all.insert(name.to_owned(), schema);
    }
    all
}

type Named = Vec<(&'static str, Value)>;

fn errors() -> Named {
    let error = json!({
        "type": "object",
        "properties": {"code": text(), "message": text(), "field": text()},
        "required": ["code", "message"],
    });
    let left_out = object(&[("time", text()), ("change", text()), ("value", json!({}))]);
    let reloaded = object(&[
        ("reloaded", flag()),
        ("persisted", flag()),
        ("changes", text()),
        ("dropped", list(&left_out)),
        ("warnings", list(&text())),
    ]);
    let deleted = object(&[
        ("deleted", flag()),
        ("persisted", flag()),
        ("changes", text()),
        ("warnings", list(&text())),
    ]);
    vec![
        ("Error", object(&[("error", error)])),
        ("Health", object(&[("status", text())])),
        ("Deleted", deleted),
        ("Reloaded", reloaded),
        ("Dropped", object(&[("dropped", list(&left_out))])),
    ]
}

fn endpoint() -> Value {
    let stream = object(&[
        ("rank", count()),
        ("trust", text()),
        ("reason", text()),
        ("last_sequence", text_or_null()),
        ("last_event_age_s", number_or_null()),
        ("batches", count()),
        ("gaps", count()),
        ("replays", count()),
    ]);
    object(&[
        ("name", text()),
        ("url", text()),
        ("rank", json!({"type": ["integer", "null"]})),
        ("state", json!({"enum": ["active", "drain", "disabled"]})),
        ("role", json!({"enum": ["unified", "prefill", "decode"]})),
        ("weight", count()),
        (
            "advised",
            object(&[
                ("weight_percent", count()),
                ("state", json!({"enum": ["active", "draining", "disabled"]})),
                ("effective_weight", count()),
            ]),
        ),
        ("group", text_or_null()),
        ("eligible", flag()),
        ("why_not", text_or_null()),
        ("up", flag()),
        ("breaker", text()),
        ("in_flight", count()),
        ("waiting", number_or_null()),
        ("running", number_or_null()),
        ("kv_usage", number_or_null()),
        ("blocks", count()),
        ("bytes", count()),
        ("trust", text()),
        ("trust_reason", text()),
        ("streams", list(&stream)),
        (
            "rates",
            object(&[
                ("prefill_tokens_per_s", number_or_null()),
                ("transfer_tokens_per_s", number_or_null()),
            ]),
        ),
        (
            "engine",
            object(&[
                ("kind", text_or_null()),
                ("version", text_or_null()),
                ("model", text_or_null()),
                ("block_size", json!({"type": ["integer", "null"]})),
            ]),
        ),
        ("origin", json!({"enum": ["file", "admin"]})),
        ("patched", list(&text())),
        ("ignored", list(&text())),
    ])
}

fn fleet() -> Named {
    let pool = object(&[
        ("model", text()),
        ("aliases", list(&text())),
        ("policy", text()),
        ("splits", flag()),
        ("warnings", list(&text())),
        ("ready", flag()),
        ("why_not_ready", text_or_null()),
        ("origin", json!({"enum": ["file", "admin"]})),
        ("patched", list(&text())),
        ("ignored", list(&text())),
        ("endpoints", list(&named("Endpoint"))),
        ("routing", or_null(&named("Routing"))),
    ]);
    let routing = object(&[
        ("model", text()),
        ("tenant", text()),
        ("mode", json!({"enum": ["round_robin", "cache_aware"]})),
        ("slo_latency_ms", number_or_null()),
        ("disaggregate", flag()),
        ("prefill_pool", text_or_null()),
        ("decode_pool", text_or_null()),
        ("updated_at", text()),
    ]);
    vec![
        ("Endpoint", endpoint()),
        ("Endpoints", object(&[("endpoints", list(&named("Endpoint")))])),
        ("Pool", pool),
        ("Pools", object(&[("pools", list(&named("Pool")))])),
        ("Routing", routing),
        ("RoutingList", object(&[("routing", list(&named("Routing")))])),
    ]
}

fn changes() -> Named {
    let policy = json!({"type": ["string", "object", "null"]});
    let options = json!({"type": ["object", "null"]});
    let pool = json!({
        "type": "object",
        "description": "A pool as in the configuration file (docs/configuration.md).",
        "properties": {
            "model": {"type": "string", "minLength": 1},
            "endpoints": list(&named("EndpointConfig")),
        },
        "required": ["model", "endpoints"],
    });
    let endpoint = json!({
        "type": "object",
        "description": "An endpoint as in the configuration file (docs/configuration.md).",
        "properties": {"url": text()},
        "required": ["url"],
    });
    vec![
        ("PoolConfig", pool),
        ("EndpointConfig", endpoint),
        (
            "PoolPatch",
            patch(&[
                ("policy", policy.clone()),
                ("fallback", policy.clone()),
                ("slo_ttft_ms", number_or_null()),
                ("decision_headers", json!({"type": ["boolean", "null"]})),
                ("sticky", options.clone()),
                ("shadow", policy),
                ("disaggregation", options),
            ]),
        ),
        (
            "EndpointPatch",
            patch(&[
                ("weight", json!({"type": ["integer", "null"]})),
                ("state", json!({"enum": ["active", "drain", "disabled", null]})),
                ("role", json!({"enum": ["unified", "prefill", "decode", null]})),
                ("group", text_or_null()),
            ]),
        ),
        (
            "RoutingPatch",
            patch(&[
                ("mode", json!({"enum": ["round_robin", "cache_aware", null]})),
                ("slo_latency_ms", number_or_null()),
                ("disaggregate", json!({"type": ["boolean", "null"]})),
                ("prefill_pool", text_or_null()),
                ("decode_pool", text_or_null()),
                ("tenant", text()),
            ]),
        ),
    ]
}

fn reports() -> Named {
    [counts(), caches(), decisions()].concat()
}

/// Requests by how they were served.
fn counts() -> Named {
    let tally = [
        ("requests", count()),
        ("hits", count()),
        ("hit_rate", json!({"type": "number"})),
        ("prompt_tokens", text()),
        ("predicted_cached_tokens", text()),
        ("by_decision", json!({"type": "object"})),
        ("by_reason", json!({"type": "object"})),
    ];
    let mut stats = tally.to_vec();
    stats.extend([
        ("since_unix_s", json!({"type": ["integer", "null"]})),
        ("pools", json!({"type": "object", "additionalProperties": object(&tally)})),
    ]);
    let routing_stats = object(&[
        ("total", count()),
        ("hits", count()),
        ("hit_rate", json!({"type": "number"})),
        ("by_decision", json!({"type": "object"})),
    ]);
    vec![
        ("Timeline", timeline()),
        ("Stats", object(&stats)),
        (
            "RoutingStats",
            object(&[("config", or_null(&named("Routing"))), ("stats", routing_stats)]),
        ),
    ]
}

/// What is known of caches, and whether it is right.
fn caches() -> Named {
    let problem = object(&[
        ("endpoint", text_or_null()),
        ("cause", text()),
        ("finding", text()),
        ("remedy", text()),
    ]);
    let parity = object(&[
        ("model", text()),
        ("tokenizer", json!({"type": "object"})),
        ("oracles", json!({"type": "object"})),
        ("token_counts", list(&json!({"type": "object"}))),
        ("over_predicted", json!({"type": "object"})),
        ("hash_contracts", list(&json!({"type": "object"}))),
        ("problems", list(&problem)),
    ]);
    let held = [("name", text()), ("blocks", count()), ("bytes", count()), ("trust", text())];
    let sample =
        object(&[("rank", count()), ("key", text()), ("depth", count()), ("tiers", list(&text()))]);
    vec![
        (
            "Parity",
            object(&[("ok", flag()), ("problems", list(&problem)), ("pools", list(&parity))]),
        ),
        (
            "Controller",
            object(&[
                ("state", json!({"enum": ["off", "following", "fading", "neutral", "off_line"]})),
                ("connected", flag()),
                ("last_error", text_or_null()),
                ("epoch", count()),
                ("boot_id", text()),
                ("alpha", json!({"type": "number"})),
                ("advised_endpoints", count()),
                ("accepted", count()),
                ("applied", count()),
                ("rejected", json!({"type": "object"})),
                ("last_rejection", text_or_null()),
                ("overrides", count()),
                ("acks_failed", count()),
            ]),
        ),
        (
            "Inventory",
            object(&[
                ("blocks", count()),
                ("bytes", count()),
                ("budget_bytes", count()),
                ("endpoints", list(&object(&held))),
            ]),
        ),
        (
            "Samples",
            object(&[
                ("name", text()),
                ("trust", text()),
                ("blocks", count()),
                ("samples", list(&sample)),
            ]),
        ),
    ]
}

/// Where requests went, or would go.
fn decisions() -> Named {
    let candidate = object(&[
        ("endpoint", text()),
        ("excluded", text_or_null()),
        ("hand_over", text_or_null()),
        ("overlap", count()),
        ("pending", count()),
        ("trust", text()),
        ("terms", json!({"type": "object"})),
        ("score", number_or_null()),
    ]);
    let decision = object(&[
        ("time", text()),
        ("pool", text()),
        ("model", text()),
        ("endpoint", text_or_null()),
        ("policy", text()),
        ("reason", text()),
        ("prompt_tokens", count()),
        ("overlap", count()),
        ("status", count()),
        ("outcome", text()),
    ]);
    vec![
        ("Decisions", object(&[("decisions", list(&decision))])),
        (
            "Explanation",
            object(&[
                ("model", text()),
                ("level", text()),
                ("tokens", text()),
                ("prompt_tokens", count()),
                ("chosen", text_or_null()),
                ("plan", text_or_null()),
                ("policy", text_or_null()),
                ("reason", text_or_null()),
                ("detail", text_or_null()),
                ("stages", list(&json!({"type": "object"}))),
                ("candidates", list(&candidate)),
                ("prefill", or_null(&candidate)),
            ]),
        ),
    ]
}

/// Steps of the last half hour.
fn timeline() -> Value {
    let times = || {
        let number = || json!({"type": "number"});
        or_null(&object(&[("count", count()), ("p50", number()), ("p95", number())]))
    };
    let judged = object(&[
        ("requests", count()),
        ("prompt_tokens", count()),
        ("predicted_cached_tokens", count()),
        ("reported_cached_tokens", count()),
    ]);
    let step = object(&[
        ("start_unix_s", count()),
        ("requests", count()),
        ("failed", count()),
        ("prompt_tokens", count()),
        ("predicted_cached_tokens", count()),
        ("judged", judged),
        ("first_data_ms", times()),
        ("total_ms", times()),
    ]);
    object(&[
        ("now_unix_s", count()),
        ("step_s", count()),
        ("kept_s", count()),
        ("steps", list(&step)),
    ])
}
