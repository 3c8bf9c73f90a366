//! The document is whole: what it refers to is there.

use std::collections::HashSet;

use super::*;

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get("$ref") {
                found.push(to.clone());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_is_there_and_every_schema_is_used() {
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    let prefix = "#/components/schemas/";
    let used: HashSet<&str> = found.iter().filter_map(|to| to.strip_prefix(prefix)).collect();
    assert_eq!(used.len(), found.iter().collect::<HashSet<_>>().len());
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let known: HashSet<&str> = schemas.keys().map(String::as_str).collect();
    assert_eq!(used, known);
}

#[test]
fn every_route_is_an_operation_with_a_name_of_its_own() {
    let document = document();
    let mut names = HashSet::new();
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method.to_ascii_lowercase()];
        assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()));
        assert!(operation["responses"][route.status.to_string()].is_object());
        let in_path = route.path.matches('{').count();
        let parameters = operation["parameters"].as_array().unwrap();
        let changes = route.access == Access::Write;
        assert_eq!(parameters.len(), in_path + route.query.len() + usize::from(changes));
        let expects =
            parameters.iter().any(|one| one["name"] == "if-match" && one["in"] == "header");
        let refused = operation["responses"]["412"].is_object();
        assert_eq!((expects, refused), (changes, changes), "{}", route.path);
        let etag = &operation["responses"][route.status.to_string()]["headers"]["etag"];
        assert_eq!(etag.is_object(), changes || route.does.shows_config(), "{}", route.path);
    }
}
