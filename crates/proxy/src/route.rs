//! Which paths exist and what they are.

use http::Method;
use kvasir_prompt::Api;

use crate::spans::Pattern;

/// What a request line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// An API call for an engine.
    Api(Api),
    /// About a stored response: for the engine that keeps it.
    Stored,
    /// A configured path, forwarded by load.
    Forward,
    /// Answered from own state.
    Models,
    Health,
    Ready,
    Metrics,
    /// The question which methods a path has.
    Options {
        allow: &'static str,
    },
    /// The path exists, the method does not.
    WrongMethod {
        allow: &'static str,
    },
    /// Nothing is there. Engines expose administrative paths: what is not listed is not forwarded.
    Unknown,
}

impl Route {
    /// Whether it is answered to anybody, without an API key: what probes ask.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Health | Self::Ready)
    }

    /// The API it calls, where it is one.
    pub(crate) fn api(self) -> Option<Api> {
        match self {
            Self::Api(api) => Some(api),
            _ => None,
        }
    }

    /// What spans call `path`, so that there are few names.
    pub(crate) fn pattern(self, path: &str) -> Pattern {
        match self {
            Self::Api(_) => Pattern::Path,
            Self::Stored if path.ends_with("/cancel") => {
                Pattern::Fixed("/v1/responses/{response_id}/cancel")
            }
            Self::Stored => Pattern::Fixed("/v1/responses/{response_id}"),
            _ => Pattern::None,
        }
    }
}

/// Finds a request line's route.
pub(crate) fn route(method: &Method, path: &str, forward_paths: &[String]) -> Route {
    // A tunnel is nothing for an engine, and has no path either.
    if method == Method::CONNECT {
        return Route::WrongMethod { allow: "GET, HEAD, POST, OPTIONS" };
    }
    let own = match path {
        "/v1/models" => Some(Route::Models),
        "/health" => Some(Route::Health),
        "/readyz" => Some(Route::Ready),
        "/metrics" => Some(Route::Metrics),
        // The gateway itself.
        "*" if method == Method::OPTIONS => {
            return Route::Options { allow: "GET, HEAD, POST, OPTIONS" };
        }
        _ => None,
    };
    if let Some(own) = own {
        let is_right = method == Method::GET || method == Method::HEAD;
        return only(method, "GET, HEAD, OPTIONS", own, is_right);
    }
    if let Some(api) = Api::from_path(path) {
        return only(method, "POST, OPTIONS", Route::Api(api), method == Method::POST);
    }
    match stored_id(path) {
        Some((_, false)) => {
            return only(method, "GET, OPTIONS", Route::Stored, method == Method::GET);
        }
        Some((_, true)) => {
            return only(method, "POST, OPTIONS", Route::Stored, method == Method::POST);
        }
        None => {}
    }
    // A path with dot segments may name another resource at the engine than it does here.
    let forwarded =
        !has_dot_segments(path) && forward_paths.iter().any(|listed| forwards(listed, path));
    if !forwarded {
        return Route::Unknown;
    }
    // An echo of a head would tell the engine's key.
    if method == Method::TRACE {
        return Route::WrongMethod { allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" };
    }
    Route::Forward
}

/// Whether a configured path, exact or a prefix that ends in `*`, lets this one through.
#[must_use]
pub fn forwards(listed: &str, path: &str) -> bool {
    match listed.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == listed,
    }
}

/// The route of a path that has few methods.
fn only(method: &Method, allow: &'static str, route: Route, is_right: bool) -> Route {
    match is_right {
        true => route,
        false if method == Method::OPTIONS => Route::Options { allow },
        false => Route::WrongMethod { allow },
    }
}

/// The id in a path about a stored response, and whether the response is to be cancelled.
pub(crate) fn stored_id(path: &str) -> Option<(&str, bool)> {
    let rest = path.strip_prefix("/v1/responses/")?;
    let (id, cancels) = match rest.strip_suffix("/cancel") {
        Some(id) => (id, true),
        None => (rest, false),
    };
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (!id.is_empty() && id.bytes().all(is_plain)).then_some((id, cancels))
}

/// Whether a path has a segment `.` or `..`, percent-encoded ones included.
fn has_dot_segments(path: &str) -> bool {
    path.split(['/', '\\']).any(|segment| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".." || plain.contains("%2f") || plain.contains("%5c")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, listed: &[&str]) -> Route {
        let listed: Vec<String> = listed.iter().map(|s| (*s).to_owned()).collect();
        route(&Method::GET, path, &listed)
    }

    #[test]
    fn known_paths() {
        assert_eq!(route(&Method::POST, "/v1/completions", &[]), Route::Api(Api::Completions));
        assert_eq!(route(&Method::POST, "/v1/chat/completions", &[]), Route::Api(Api::Chat));
        assert_eq!(get("/v1/chat/completions", &[]), Route::WrongMethod { allow: "POST, OPTIONS" });
        for (path, allow) in [
            ("*", "GET, HEAD, POST, OPTIONS"),
            ("/health", "GET, HEAD, OPTIONS"),
            ("/v1/completions", "POST, OPTIONS"),
            ("/v1/responses/resp_1", "GET, OPTIONS"),
        ] {
            assert_eq!(route(&Method::OPTIONS, path, &[]), Route::Options { allow }, "{path}");
        }
        assert_eq!(route(&Method::OPTIONS, "/nowhere", &[]), Route::Unknown);
        assert_eq!(route(&Method::GET, "*", &[]), Route::Unknown);
        assert_eq!(get("/v1/models", &[]), Route::Models);
        assert_eq!(route(&Method::HEAD, "/health", &[]), Route::Health);
        assert_eq!(
            route(&Method::POST, "/metrics", &[]),
            Route::WrongMethod { allow: "GET, HEAD, OPTIONS" }
        );
    }

    #[test]
    fn paths_about_stored_responses() {
        assert_eq!(get("/v1/responses/resp_1", &[]), Route::Stored);
        assert_eq!(route(&Method::POST, "/v1/responses/resp_1/cancel", &[]), Route::Stored);
        assert_eq!(
            get("/v1/responses/resp_1/cancel", &[]),
            Route::WrongMethod { allow: "POST, OPTIONS" }
        );
        for path in ["/v1/responses/", "/v1/responses/..", "/v1/responses/a/b", "/v1/responses/%2e"]
        {
            assert_eq!(get(path, &[]), Route::Unknown, "{path}");
        }
        assert_eq!(stored_id("/v1/responses/resp_1/cancel"), Some(("resp_1", true)));
    }

    #[test]
    fn only_listed_paths_are_forwarded() {
        for path in ["/v1/load_lora_adapter", "/reset_prefix_cache", "/", "/v1", "/v1/models/x"] {
            assert_eq!(get(path, &["/v1/audio/*", "/pooling"]), Route::Unknown, "{path}");
        }
        assert_eq!(get("/v1/audio/speech", &["/v1/audio/*"]), Route::Forward);
        assert_eq!(get("/pooling", &["/pooling"]), Route::Forward);
        assert_eq!(get("/pooling/x", &["/pooling"]), Route::Unknown);
    }

    #[test]
    fn neither_tunnels_nor_echoes_are_forwarded() {
        let listed = ["/*".to_owned()];
        for (method, path) in [(Method::CONNECT, ""), (Method::TRACE, "/pooling")] {
            assert!(matches!(route(&method, path, &listed), Route::WrongMethod { .. }));
        }
        assert_eq!(route(&Method::OPTIONS, "/pooling", &listed), Route::Forward);
    }

    #[test]
    fn a_listed_prefix_cannot_be_climbed_out_of() {
        for path in [
            "/v1/audio/../load_lora_adapter",
            "/v1/audio/%2e%2E/load",
            "/v1/audio/.%2e/x",
            "/v1/audio/..%2fload",
            "/v1/audio/..\\load",
        ] {
            assert_eq!(get(path, &["/v1/audio/*"]), Route::Unknown, "{path}");
        }
    }
}
