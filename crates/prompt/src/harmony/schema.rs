//! A tool's JSON schema as the TypeScript that gpt-oss models are shown.
//!
//! The layout, with its odd places (an object closes at the indent of its own properties, an enum's
//! default is not quoted), is that of `openai_harmony` as vLLM 0.32 ships it.

use std::collections::HashSet;

use crate::json::{Dict, Json, MAX_DEPTH, write_string};

/// The type a schema describes, on as many lines as it takes.
pub(super) fn typescript(schema: &Json) -> String {
    let mut out = String::new();
    write_type(schema, "", 0, &mut out);
    out
}

/// A field of a schema; schemas that are no objects have none.
fn field<'a>(schema: &'a Json, name: &str) -> Option<&'a Json> {
    schema.as_dict()?.get(name)
}

fn text<'a>(schema: &'a Json, name: &str) -> Option<&'a str> {
    field(schema, name)?.as_str()
}

fn list<'a>(schema: &'a Json, name: &str) -> Option<&'a [Json]> {
    field(schema, name)?.as_list()
}

fn is_enum(schema: &Json) -> bool {
    list(schema, "enum").is_some_and(|values| !values.is_empty())
}

fn write_type(schema: &Json, indent: &str, depth: usize, out: &mut String) {
    if depth > MAX_DEPTH {
        out.push_str("any");
    } else if let Some(variants) = list(schema, "oneOf") {
        write_union(variants, indent, depth, out);
    } else if let Some(names) = type_names(schema) {
        out.push_str(&names);
    } else {
        match text(schema, "type") {
            Some("object") => write_object(schema, indent, depth, out),
            Some("string") => out.push_str(&string_type(schema)),
            Some("number" | "integer") => out.push_str("number"),
            Some("boolean") => out.push_str("boolean"),
            Some("array") => match field(schema, "items") {
                Some(items) => {
                    write_type(items, indent, depth + 1, out);
                    out.push_str("[]");
                }
                None => out.push_str("Array<any>"),
            },
            _ => out.push_str("any"),
        }
    }
}

/// A list of type names, as they are but for integers.
fn type_names(schema: &Json) -> Option<String> {
    let names = list(schema, "type")?.iter().filter_map(Json::as_str);
    let names: Vec<&str> = names.map(|n| if n == "integer" { "number" } else { n }).collect();
    (!names.is_empty()).then(|| names.join(" | "))
}

fn string_type(schema: &Json) -> String {
    let values = list(schema, "enum").unwrap_or_default();
    let values: Vec<String> =
        values.iter().filter_map(Json::as_str).map(|v| format!("\"{v}\"")).collect();
    if values.is_empty() { "string".to_owned() } else { values.join(" | ") }
}

fn write_union(variants: &[Json], indent: &str, depth: usize, out: &mut String) {
    for variant in variants {
        out.push_str(&format!("\n{indent} | {}", nullable(variant, indent, "   ", depth)));
        let mut notes: Vec<String> =
            text(variant, "description").map(str::to_owned).into_iter().collect();
        // Here, and only here, the default of an enum is quoted.
        notes.extend(field(variant, "default").map(|d| match d.as_str() {
            Some(text) => format!("default: \"{text}\""),
            None => format!("default: {}", compact(d)),
        }));
        write_notes(&notes, out);
    }
}

fn write_notes(notes: &[String], out: &mut String) {
    if !notes.is_empty() {
        out.push_str(&format!(" // {}", notes.join(" ")));
    }
}

/// A type, with `| null` where the schema says so and the text has no `null` yet.
fn nullable(schema: &Json, indent: &str, step: &str, depth: usize) -> String {
    let mut out = String::new();
    write_type(schema, &format!("{indent}{step}"), depth + 1, &mut out);
    if field(schema, "nullable") == Some(&Json::Bool(true)) && !out.contains("null") {
        out.push_str(" | null");
    }
    out
}

fn write_object(schema: &Json, indent: &str, depth: usize, out: &mut String) {
    if let Some(description) = text(schema, "description") {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    out.push_str("{\n");
    let required = list(schema, "required").unwrap_or_default();
    let required: HashSet<&str> = required.iter().filter_map(Json::as_str).collect();
    if let Some(Json::Dict(Dict(properties))) = field(schema, "properties") {
        for (name, property) in properties {
            let name = format!("{name}{}", if required.contains(name.as_str()) { "" } else { "?" });
            write_property(&name, property, indent, depth, out);
        }
    }
    out.push_str(&format!("{indent}}}"));
}

fn write_property(name: &str, property: &Json, indent: &str, depth: usize, out: &mut String) {
    let has_variants = field(property, "oneOf").is_some();
    if let Some(title) = text(property, "title") {
        out.push_str(&format!("{indent}// {title}\n{indent}//\n"));
    }
    if let Some(description) = text(property, "description").filter(|_| !has_variants) {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    if let Some(examples) = list(property, "examples").filter(|e| !e.is_empty()) {
        out.push_str(&format!("{indent}// Examples:\n"));
        for example in examples.iter().filter_map(Json::as_str) {
            out.push_str(&format!("{indent}// - \"{example}\"\n"));
        }
    }
    if let Some(variants) = list(property, "oneOf") {
        return write_variants(name, property, variants, indent, depth, out);
    }
    out.push_str(&format!("{indent}{name}: {},", nullable(property, indent, "    ", depth)));
    if let Some(default) = field(property, "default").filter(|_| !has_variants) {
        out.push_str(&format!(" // {}", default_note(default, property)));
    }
    out.push('\n');
}

/// A property that is one of several types: one line for each.
fn write_variants(
    name: &str,
    property: &Json,
    variants: &[Json],
    indent: &str,
    depth: usize,
    out: &mut String,
) {
    let description = text(property, "description");
    let first = variants.first().and_then(|v| text(v, "description"));
    // A description that the first variant repeats is not shown at all.
    let above = description.filter(|d| first != Some(*d));
    if let Some(description) = above {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    if let Some(default) = field(property, "default") {
        out.push_str(&format!("{indent}// {}\n", default_note(default, property)));
    }
    out.push_str(&format!("{indent}{name}:\n"));
    for (i, variant) in variants.iter().enumerate() {
        out.push_str(&format!("{indent} | {}", nullable(variant, indent, "   ", depth)));
        let own = text(variant, "description").filter(|own| Some(*own) != description);
        let own = own.filter(|_| i > 0 || above.is_none());
        let mut notes: Vec<String> = own.map(str::to_owned).into_iter().collect();
        notes.extend(field(variant, "default").map(|d| default_note(d, variant)));
        write_notes(&notes, out);
        out.push('\n');
    }
    out.push_str(&format!("{indent},\n"));
}

fn default_note(default: &Json, schema: &Json) -> String {
    match default.as_str() {
        Some(text) if is_enum(schema) => format!("default: {text}"),
        Some(text) => format!("default: \"{text}\""),
        None => format!("default: {}", compact(default)),
    }
}

/// JSON without blanks, as Rust's `serde_json` writes it.
fn compact(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(b) => b.to_string(),
        Json::Int(i) if i64::try_from(*i).is_ok() || u64::try_from(*i).is_ok() => i.to_string(),
        // Longer integers have become floats there.
        Json::Int(i) => float(*i as f64),
        Json::BigInt(digits) => digits.parse().map_or_else(|_| digits.clone(), float),
        Json::Float(f) => float(*f),
        Json::Str(s) => quoted(s),
        Json::List(items) => {
            let items: Vec<String> = items.iter().map(compact).collect();
            format!("[{}]", items.join(","))
        }
        Json::Dict(fields) => {
            let fields: Vec<String> =
                fields.0.iter().map(|(k, v)| format!("{}:{}", quoted(k), compact(v))).collect();
            format!("{{{}}}", fields.join(","))
        }
    }
}

/// The shortest digits, with an exponent from 1e16 on and below 1e-5.
fn float(f: f64) -> String {
    if !f.is_finite() {
        return "null".to_owned();
    }
    let scientific = format!("{f:e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if f != 0.0 && !(-5..16).contains(&exponent) {
        return if exponent > 0 { scientific.replace('e', "e+") } else { scientific };
    }
    let plain = format!("{f}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn quoted(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    write_string(s, false, &mut out);
    out
}
