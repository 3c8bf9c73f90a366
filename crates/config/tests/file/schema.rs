//! The published schema says what the parser takes: the same keys, words and bounds.

use std::collections::BTreeSet;

use kvasir_config::{Config, SCHEMA, VARIABLES};
use serde_json::{Value, json};

use crate::examples::{docs, examples};

/// rolter's words, which the parser does not list among its own.
const ALIASES: [&str; 1] = ["kv_events"];

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn resolved<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(name) => root.pointer(name.strip_prefix('#').unwrap()).unwrap(),
        None => node,
    }
}

/// Every value of the schema with a document in which `null` stands in its place; the path to it.
fn nodes() -> Vec<(Vec<String>, Value)> {
    let root = schema();
    let mut found = Vec::new();
    walk(&root, &root, &mut Vec::new(), &mut found);
    found
}

fn walk(root: &Value, node: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, Value)>) {
    let node = resolved(root, node);
    found.push((path.clone(), node.clone()));
    for (name, below) in node["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        walk(root, below, path, found);
        path.pop();
    }
    if node["items"].is_object() {
        path.push("0".to_owned());
        walk(root, &node["items"], path, found);
        path.pop();
    }
    for one in node["oneOf"].as_array().into_iter().flatten() {
        // Of alternatives those with a name are told apart by it, in the path.
        let name = one["properties"]["name"]["const"].as_str();
        let tag = name.map(|name| format!("name={name}"));
        path.extend(tag.clone());
        if one["type"] == "object" && path.last().is_none_or(|last| last != "0") {
            walk(root, one, path, found);
        }
        if tag.is_some() {
            path.pop();
        }
    }
}

/// A sound document with `value` at the path.
fn document(path: &[String], value: Value) -> Value {
    let mut config = json!({"pools": [{"model": "m", "endpoints": [{"url": "https://a"}]}]});
    let mut at = &mut config;
    let mut before = String::new();
    for step in path {
        if let Some(name) = step.strip_prefix("name=") {
            if at.is_null() {
                *at = json!({});
            }
            at["name"] = name.into();
            continue;
        }
        if at.is_null() {
            *at = match before.as_str() {
                "decision_log" => json!({"directory": "/d"}),
                "controller" => json!({"address": "c:1"}),
                "tracing" => json!({"otlp_endpoint": "http://c"}),
                "tls" => json!({"cert_file": "/c", "key_file": "/k"}),
                "kv_events" => json!({"endpoint": "tcp://*:1"}),
                "imbalance" => json!({"absolute": 1, "relative": 1.5}),
                "bound" => json!({"load_factor_percent": 100}),
                _ if step == "0" => json!([null]),
                _ => json!({}),
            };
        }
        before.clone_from(step);
        at = match step.parse::<usize>() {
            Ok(place) => &mut at[place],
            Err(_) => &mut at[step.as_str()],
        };
    }
    *at = value;
    config
}

fn error(document: &Value) -> Option<String> {
    Config::parse("f", &document.to_string()).err().map(|error| error.to_string())
}

/// The words a message says were expected.
fn expected(message: &str) -> BTreeSet<String> {
    let (_, list) = message.split_once("expected ").unwrap_or_default();
    let list = list.strip_prefix("one of ").unwrap_or(list);
    list.split(", ").map(|word| word.trim_matches('`').to_owned()).collect()
}

#[test]
fn every_section_has_the_keys_that_the_parser_takes() {
    let mut sections = 0;
    for (path, node) in nodes() {
        let Some(properties) = node["properties"].as_object() else { continue };
        let told = |name: &&String| !ALIASES.contains(&name.as_str());
        let mut keys: BTreeSet<String> = properties.keys().filter(told).cloned().collect();
        let mut below = path.clone();
        below.push("zzzz".to_owned());
        let is_policy = path.last().is_some_and(|step| step.starts_with("name="));
        if is_policy {
            keys.remove("name");
            // Policies without options have none that could be listed.
            if keys.is_empty() {
                continue;
            }
        }
        let message = error(&document(&below, json!(1))).unwrap();
        if path.last().is_some_and(|last| last == "kv_events") {
            assert!(message.contains("zzzz"), "{message}");
            continue;
        }
        if keys.len() == 1 && !message.contains("unknown key") {
            // One of several forms.
            assert!(message.contains("zzzz") || message.contains("expected"), "{message}");
            continue;
        }
        assert!(message.contains("unknown key `zzzz`"), "{path:?}: {message}");
        assert_eq!(expected(&message), keys, "{path:?}");
        sections += 1;
    }
    assert!(sections >= 20, "{sections}");
}

#[test]
fn every_word_is_one_that_the_parser_takes_and_there_are_no_others() {
    let mut lists = 0;
    for (path, node) in nodes() {
        let Some(words) = node["enum"].as_array() else { continue };
        let message = error(&document(&path, json!("zzzz"))).unwrap();
        if !message.contains("unknown value") {
            assert!(message.contains("algorithm"), "{path:?}: {message}");
            continue;
        }
        let words: BTreeSet<String> =
            words.iter().map(|word| word.as_str().unwrap().to_owned()).collect();
        assert_eq!(expected(&message), words, "{path:?}");
        lists += 1;
    }
    assert!(lists >= 10, "{lists}");
    let root = schema();
    let policies = root["$defs"]["policy"]["oneOf"][0]["enum"].as_array().unwrap();
    let policies: Vec<&str> = policies.iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(policies, kvasir_balance::PolicyKind::ALL.map(kvasir_balance::PolicyKind::name));
}

#[test]
fn what_is_beyond_a_bound_is_refused_and_defaults_are_taken() {
    let mut bounds = 0;
    for (path, node) in nodes() {
        if let Some(default) = node.get("default") {
            assert_eq!(error(&document(&path, default.clone())), None, "{path:?}");
        }
        let integer = node["type"] == "integer";
        if !integer && node["type"] != "number" {
            continue;
        }
        for (bound, step) in [("minimum", -1.0), ("maximum", 1.0)] {
            let Some(value) = node[bound].as_f64() else { continue };
            let beyond = value + step;
            #[expect(clippy::cast_possible_truncation, reason = "whole, and far below 2^53")]
            let beyond = if integer { json!(beyond as i64) } else { json!(beyond) };
            let said = error(&document(&path, beyond.clone()));
            assert!(said.is_some(), "{path:?} takes {beyond}");
            bounds += 1;
        }
    }
    assert!(bounds >= 80, "{bounds}");
}

#[test]
fn defaults_are_those_of_the_smallest_file() {
    let shown = kvasir_config::shown(&crate::parse(crate::SMALL).unwrap()).unwrap();
    let mut compared = 0;
    for (path, node) in nodes() {
        let Some(default) = node.get("default") else { continue };
        let Some(value) = shown.pointer(&format!("/{}", path.join("/"))) else { continue };
        assert_eq!(value, default, "{path:?}");
        compared += 1;
    }
    assert!(compared >= 30, "{compared}");
}

#[test]
fn every_key_and_every_variable_is_documented() {
    let text = docs("configuration.md") + &docs("policies.md");
    let words: BTreeSet<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    for (path, _) in nodes() {
        let Some(key) = path.last().filter(|key| !key.contains('=') && *key != "0") else {
            continue;
        };
        assert!(words.contains(key.as_str()), "`{}` is not documented", path.join("."));
    }
    let page = docs("configuration.md");
    for variable in VARIABLES {
        let line = page.lines().find(|line| line.contains(&format!("`{}`", variable.name)));
        let line = line.unwrap_or_else(|| panic!("{variable:?} is not documented"));
        assert!(line.contains(&format!("`{}`", variable.key)), "{line}");
    }
    assert!(page.contains(kvasir_config::CONFIG_VARIABLE));
}

#[test]
fn the_examples_fit_the_schema() {
    let root = schema();
    for (name, text) in examples() {
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(misfit(&root, &root, &value), None, "{name}");
    }
    for wrong in [
        json!({"pools": []}),
        json!({"pools": [{"model": "m", "endpoints": [{"url": "http://a", "x": 1}]}]}),
        json!({"pools": [{"model": 3, "endpoints": [{"url": "http://a"}]}]}),
        json!({"listen": "127.0.0.1:1"}),
    ] {
        assert!(misfit(&root, &root, &wrong).is_some(), "{wrong}");
    }
}

/// Where a value does not fit, by the words of JSON schema that ours uses.
fn misfit(root: &Value, node: &Value, value: &Value) -> Option<String> {
    let node = resolved(root, node);
    let kind = node["type"].as_str();
    let fits = match kind {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    };
    let listed = node["enum"].as_array().is_none_or(|words| words.contains(value));
    let constant = node.get("const").is_none_or(|wanted| wanted == value);
    let least = node["minimum"].as_f64().is_none_or(|least| value.as_f64() >= Some(least));
    let most = node["maximum"].as_f64().is_none_or(|most| value.as_f64() <= Some(most));
    let count = value.as_array().map_or(u64::MAX, |list| list.len() as u64);
    let enough = node["minItems"].as_u64().is_none_or(|least| count >= least);
    if !(fits && listed && constant && least && most && enough) {
        return Some(format!("{value} is not {node}"));
    }
    if let Some(forms) = node["oneOf"].as_array() {
        let fitting = forms.iter().filter(|form| misfit(root, form, value).is_none()).count();
        return (fitting != 1).then(|| format!("{value} fits {fitting} forms"));
    }
    for required in node["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            return Some(format!("{required} is missing in {value}"));
        }
    }
    for (key, below) in value.as_object().into_iter().flatten() {
        let Some(properties) = node["properties"].as_object() else { continue };
        let Some(property) = properties.get(key) else { return Some(format!("{key} is unknown")) };
        if let Some(why) = misfit(root, property, below) {
            return Some(why);
        }
    }
    value.as_array().into_iter().flatten().find_map(|item| misfit(root, &node["items"], item))
}
