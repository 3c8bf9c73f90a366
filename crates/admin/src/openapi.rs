//! The `OpenAPI` document, made of the table of routes.

mod schemas;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::auth::Access;
use crate::routes::{Content, Parameter, ROUTES, Route};

/// The document (`OpenAPI` 3.1).
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Kvasir admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What a Kvasir gateway knows and does, and changes to it.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`admin.read_token` reads, `admin.write_token` reads and \
                                    changes. On a loopback address reading may be open.",
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut responses = Map::new();
    let given = match route.gives {
        Content::Json(schema) => json!({"application/json": {"schema": schemas::named(schema)}}),
        Content::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
        Content::Page => json!({"text/*": {"schema": {"type": "string"}}}),
        Content::None => json!({}),
    };
    let done = json!({"description": "Done.", "content": given});
    responses.insert(route.status.to_string(), done);
    for status in refusals(route) {
        let error = json!({"application/json": {"schema": schemas::named("Error")}});
        let refused = json!({"description": "Refused.", "content": error});
        responses.insert(status.to_string(), refused);
    }
    let mut parameters: Vec<Value> = of_path(route.path);
    parameters.extend(route.query.iter().map(of_query));
    let mut operation = json!({
        "operationId": format!("{:?}", route.does),
        "summary": route.about,
        "parameters": parameters,
        "responses": responses,
        "security": match route.access {
            Access::Open => json!([]),
            Access::Read | Access::Write => json!([{"token": []}]),
        },
    });
    if let Content::Json(schema) = route.takes {
        let content = json!({"application/json": {"schema": schemas::named(schema)}});
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

/// What a route may say no with.
fn refusals(route: &Route) -> Vec<u16> {
    let mut all = vec![400, 403, 422, 500, 503];
    if route.access != Access::Open {
        all.push(401);
    }
    if route.path.contains('{') || route.access == Access::Write || route.method == "POST" {
        all.push(404);
    }
    if route.method != "GET" {
        all.extend([409, 413]);
    }
    if route.access == Access::Write {
        all.push(412);
    }
    if !route.query.is_empty() && route.method == "POST" {
        all.push(405);
    }
    all.sort_unstable();
    all
}

fn of_path(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            json!({
                "name": name,
                "in": "path",
                "required": true,
                "description": "Percent-encoded where it has a `/`.",
                "schema": {"type": "string", "minLength": 1},
            })
        })
        .collect()
}

fn of_query(parameter: &Parameter) -> Value {
    let Parameter { name, kind, about } = parameter;
    json!({
        "name": name,
        "in": "query",
        "required": false,
        "description": about,
        "schema": {"type": kind},
    })
}
