use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{Edit, MAX_FIELDS, Marks, MarksError, ObjectText, first_entry};

fn edited(text: &str, edit: &Edit) -> String {
    ObjectText::parse(text.as_bytes()).unwrap().edited(edit)
}

#[test]
fn a_value_is_replaced_and_nothing_else_is_touched() {
    let text = "{ \"a\" : 1.50 ,\n\t\"max_tokens\" :  256 , \"b\":[ 1,2 ] }\n";
    let want = "{ \"a\" : 1.50 ,\n\t\"max_tokens\" :  1 , \"b\":[ 1,2 ] }\n";
    assert_eq!(edited(text, &Edit::default().set("max_tokens", "1")), want);
}

#[test]
fn a_field_of_the_same_name_deeper_down_is_another_one() {
    let text = r#"{"messages":[{"max_tokens":9,"stream":true}],"max_tokens":7}"#;
    let want = r#"{"messages":[{"max_tokens":9,"stream":true}],"max_tokens":1}"#;
    assert_eq!(
        edited(text, &Edit::default().replace("max_tokens", "1").replace("stream", "0")),
        want
    );
    let in_text = r#"{"prompt":"say \"max_tokens\": 5, {","max_tokens":7}"#;
    let want = r#"{"prompt":"say \"max_tokens\": 5, {","max_tokens":1}"#;
    assert_eq!(edited(in_text, &Edit::default().set("max_tokens", "1")), want);
}

#[test]
fn what_is_new_comes_last() {
    assert_eq!(edited("{}", &Edit::default().set("x", "{}")), r#"{"x":{}}"#);
    assert_eq!(edited("{ }", &Edit::default().set("x", "1").set("y", "2")), r#"{"x":1,"y":2 }"#);
    assert_eq!(edited(r#"{"a":1 }"#, &Edit::default().set("x", "1")), r#"{"a":1,"x":1 }"#);
    assert_eq!(edited(r#"{"a":1}"#, &Edit::default().replace("x", "1")), r#"{"a":1}"#);
}

#[test]
fn fields_go_with_their_commas() {
    let remove = |keys: &[&str]| keys.iter().fold(Edit::default(), |edit, key| edit.remove(key));
    let text = r#"{"a":1, "b":2, "c":3}"#;
    assert_eq!(edited(text, &remove(&["a"])), r#"{"b":2, "c":3}"#);
    assert_eq!(edited(text, &remove(&["b"])), r#"{"a":1, "c":3}"#);
    assert_eq!(edited(text, &remove(&["c"])), r#"{"a":1, "b":2}"#);
    assert_eq!(edited(text, &remove(&["a", "b"])), r#"{"c":3}"#);
    assert_eq!(edited(text, &remove(&["b", "c"])), r#"{"a":1}"#);
    assert_eq!(edited(text, &remove(&["a", "b", "c"])), "{}");
    assert_eq!(edited(text, &remove(&["a", "b", "c"]).set("d", "4")), r#"{"d":4}"#);
    assert_eq!(edited(text, &remove(&["c"]).set("d", "4")), r#"{"a":1, "b":2,"d":4}"#);
}

#[test]
fn duplicates_are_changed_together_and_the_last_is_read() {
    let text = r#"{"n":1,"a":0,"n":2}"#;
    assert_eq!(ObjectText::parse(text.as_bytes()).unwrap().get("n"), Some("2"));
    assert_eq!(edited(text, &Edit::default().set("n", "7")), r#"{"n":7,"a":0,"n":7}"#);
    assert_eq!(edited(text, &Edit::default().remove("n")), r#"{"a":0}"#);
}

#[test]
fn keys_are_compared_as_they_read() {
    let text = r#"{"max\u005ftokens":9}"#;
    assert_eq!(edited(text, &Edit::default().set("max_tokens", "1")), r#"{"max\u005ftokens":1}"#);
}

#[test]
fn what_is_no_object_is_refused_with_its_place() {
    let error = ObjectText::parse(b"{\"a\": 1,\n \"b\" 2}").unwrap_err();
    let MarksError::NotJson(error) = error else { panic!("{error}") };
    assert_eq!(error.position, Some((2, 6)));
    assert!(ObjectText::parse(b"[1]").is_err());
    assert!(ObjectText::parse(b"{\"a\":\xff}").is_err());
}

#[test]
fn marks_outlive_the_text_they_were_made_from() {
    let body = "\u{feff} {\"a\":\"é\" ,\"max_tokens\": 9}".as_bytes().to_vec();
    let marks = Marks::of(&body).unwrap();
    let moved = body.clone();
    drop(body);
    assert_eq!(
        (marks.get(&moved, "a"), marks.get(&moved, "max_tokens")),
        (Some("\"é\""), Some("9"))
    );
    let out = marks.edited(&moved, &Edit::default().set("max_tokens", "1").set("x", "2"));
    assert_eq!(out, " {\"a\":\"é\" ,\"max_tokens\": 1,\"x\":2}".as_bytes());
    // A body they were not made from gives nothing, and no panic.
    assert_eq!((marks.get(b"{}", "a"), marks.has(b"{}", "x")), (None, false));
    let _ = marks.edited(b"{}", &Edit::default().remove("a"));
}

#[test]
fn an_object_of_very_many_fields_is_not_marked() {
    let object = |fields: usize| {
        let fields: Vec<String> = (0..fields).map(|at| format!("\"{at}\":1")).collect();
        format!("{{{}}}", fields.join(","))
    };
    assert!(Marks::of(object(MAX_FIELDS).as_bytes()).is_ok());
    let many = object(MAX_FIELDS + 1);
    assert_eq!(Marks::of(many.as_bytes()).unwrap_err(), MarksError::ManyFields);
}

#[test]
fn the_first_entry_of_a_list_is_found() {
    assert_eq!(first_entry(r#" [ {"x":[1]} , 2]"#), Some(r#"{"x":[1]}"#));
    assert_eq!(first_entry("[]"), None);
    assert_eq!(first_entry("{}"), None);
}

/// A change of one key.
#[derive(Debug, Clone)]
enum Step {
    Set(String, i32),
    Replace(String, i32),
    Remove(String),
}

fn key() -> impl Strategy<Value = String> {
    // Few, so that they meet; one that has to be escaped.
    prop_oneof!["[abc]", Just("\"q\\".to_owned())]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (key(), any::<i32>()).prop_map(|(key, value)| Step::Set(key, value)),
        (key(), any::<i32>()).prop_map(|(key, value)| Step::Replace(key, value)),
        key().prop_map(Step::Remove),
    ]
}

/// An object's text with white space, nested values and duplicate keys, and the fields it is made of.
fn object() -> impl Strategy<Value = (String, Vec<(String, String)>)> {
    let raw = prop_oneof![
        Just("1.50".to_owned()),
        Just("{ \"a\" : [ ] , \"b\":\"}\" }".to_owned()),
        Just("\"a, \\\"b\\\": 3}\"".to_owned()),
        Just("[1 , {\"c\":2}]".to_owned()),
    ];
    let space = "[ \n]{0,2}";
    let field = (key(), raw, space, space, space, space);
    (proptest::collection::vec(field, 0..6), space).prop_map(|(fields, last)| {
        let texts: Vec<String> = fields
            .iter()
            .map(|(key, raw, a, b, c, d)| {
                format!("{a}{}{b}:{c}{raw}{d}", serde_json::to_string(key).unwrap())
            })
            .collect();
        let known = fields.into_iter().map(|(key, raw, ..)| (key, raw)).collect();
        (format!("{{{}{last}}}", texts.join(",")), known)
    })
}

proptest! {
    /// Against a model that builds the whole document, and byte for byte where nothing changed.
    #[test]
    fn it_means_what_a_rebuilt_document_would((text, fields) in object(), steps in proptest::collection::vec(step(), 0..5)) {
        let mut model: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let mut edit = Edit::default();
        let mut last: Vec<&Step> = Vec::new();
        let of = |step: &Step| match step { Step::Set(key, _) | Step::Replace(key, _) | Step::Remove(key) => key.clone() };
        for step in &steps {
            last.retain(|known| of(known) != of(step));
            last.push(step);
            edit = match step {
                Step::Set(key, value) => edit.set(key, value.to_string()),
                Step::Replace(key, value) => edit.replace(key, value.to_string()),
                Step::Remove(key) => edit.remove(key),
            };
        }
        for step in &last {
            match step {
                Step::Set(key, value) => { model.insert(key.clone(), (*value).into()); }
                Step::Replace(key, value) => if let Some(slot) = model.get_mut(key) { *slot = (*value).into(); },
                Step::Remove(key) => { model.shift_remove(key); }
            }
        }
        let out = edited(&text, &edit);
        let read: Map<String, Value> = serde_json::from_str(&out).unwrap();
        prop_assert_eq!(read, model);
        let touched = fields.iter().any(|(key, _)| last.iter().any(|step| of(step) == *key));
        let sets = last.iter().any(|step| matches!(step, Step::Set(..)));
        if !touched && !sets {
            prop_assert_eq!(&out, &text);
        }
        // The values of fields nobody named stand there as they were.
        let again = ObjectText::parse(out.as_bytes()).unwrap();
        for (key, raw) in fields.iter().rev() {
            if last.iter().all(|step| of(step) != *key) {
                let latest = fields.iter().rev().find(|(known, _)| known == key).unwrap();
                prop_assert_eq!(again.get(key), Some(latest.1.as_str()), "{}", raw);
            }
        }
    }
}
