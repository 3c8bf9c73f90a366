//! What the API's own document says of it.

use serde_json::Value;

/// The title of the document.
const TITLE: &str = "Kvasir admin API";

/// The version of the gateway, where this is the document of an admin API.
pub(crate) fn version(document: &Value) -> Option<&str> {
    let info = document.get("info")?;
    (info.get("title")?.as_str()? == TITLE).then_some(())?;
    Some(info.get("version").and_then(Value::as_str).unwrap_or("unknown"))
}

/// Whether the API has a route with this method for this path.
pub(crate) fn has_route(document: &Value, method: &str, path: &str) -> bool {
    let method = method.to_ascii_lowercase();
    let paths = document.get("paths").and_then(Value::as_object);
    paths
        .into_iter()
        .flatten()
        .any(|(template, operations)| fits(template, path) && operations.get(&method).is_some())
}

fn fits(template: &str, path: &str) -> bool {
    let (mut of_template, mut of_path) = (template.split('/'), path.split('/'));
    loop {
        match (of_template.next(), of_path.next()) {
            (None, None) => return true,
            (Some(part), Some(found)) if part.starts_with('{') || part == found => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn routes_are_found_by_their_templates() {
        let document = json!({
            "info": {"title": TITLE, "version": "0.1.0"},
            "paths": {"/api/v1/pools/{model}": {"get": {}}},
        });
        assert_eq!(version(&document), Some("0.1.0"));
        assert!(has_route(&document, "GET", "/api/v1/pools/a%2Fb"));
        assert!(!has_route(&document, "PATCH", "/api/v1/pools/a"));
        assert!(!has_route(&document, "GET", "/api/v1/pools/a/b"));
        assert!(!has_route(&document, "GET", "/api/v1/pools"));
        assert_eq!(version(&json!({"info": {"title": "other"}})), None);
    }
}
