//! Every route: what it is called by, what it asks of the caller, and what it takes and gives. The
//! `OpenAPI` document is made of this table, and requests are found by it.

use http::{Method, StatusCode};

use crate::auth::Access;
use crate::error::ApiError;
use crate::path;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Page,
    PageFile,
    Health,
    Document,
    Metrics,
    ListPools,
    CreatePool,
    ShowPool,
    PatchPool,
    DeletePool,
    ListPoolEndpoints,
    CreateEndpoint,
    ShowEndpoint,
    PatchEndpoint,
    DeleteEndpoint,
    ListEndpoints,
    Explain,
    Inventory,
    Samples,
    Parity,
    Controller,
    Decisions,
    Stats,
    Timeline,
    ShowConfig,
    ListDropped,
    Reload,
    ListRouting,
    ShowRouting,
    PatchRouting,
    DeleteRouting,
    RoutingStats,
}

impl Does {
    /// Whether it shows something that changes are made to.
    pub(crate) fn shows_config(self) -> bool {
        use Does::{
            ListEndpoints, ListPoolEndpoints, ListPools, ListRouting, ShowConfig, ShowEndpoint,
            ShowPool, ShowRouting,
        };
        matches!(
            self,
            ListEndpoints
                | ListPoolEndpoints
                | ListPools
                | ListRouting
                | ShowConfig
                | ShowEndpoint
                | ShowPool
                | ShowRouting
        )
    }
}

/// A value of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// `string` or `integer`.
    pub(crate) kind: &'static str,
    pub(crate) about: &'static str,
}

/// What a body or an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// JSON of a schema in [`openapi`](crate::openapi).
    Json(&'static str),
    /// Plain text.
    Text,
    /// A file of the status page.
    Page,
    /// Nothing.
    None,
}

/// One route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// The path, with `{…}` for segments of any value.
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) does: Does,
    pub(crate) about: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) takes: Content,
    pub(crate) status: u16,
    pub(crate) gives: Content,
}

impl Route {
    /// Whether its answers have the version of the configuration.
    pub(crate) fn has_version(&self) -> bool {
        self.access == Access::Write || self.does.shows_config()
    }
}

const TENANT: Parameter =
    Parameter { name: "tenant", kind: "string", about: "The tenant; `default` is everybody." };

const fn read(path: &'static str, does: Does, gives: &'static str, about: &'static str) -> Route {
    let (access, gives) = (Access::Read, Content::Json(gives));
    let takes = Content::None;
    Route { method: "GET", path, access, does, about, query: &[], takes, status: 200, gives }
}

const fn page(path: &'static str, does: Does, about: &'static str) -> Route {
    Route { access: Access::Open, gives: Content::Page, ..read(path, does, "", about) }
}

const fn write(
    method: &'static str,
    path: &'static str,
    does: Does,
    (takes, gives): (Content, &'static str),
    about: &'static str,
) -> Route {
    let (access, gives) = (Access::Write, Content::Json(gives));
    Route { method, path, access, does, about, query: &[], takes, status: 200, gives }
}

const fn asking(route: Route, query: &'static [Parameter]) -> Route {
    Route { query, ..route }
}

const fn creating(route: Route) -> Route {
    Route { status: 201, ..route }
}

const POOL: &str = "/api/v1/pools/{model}";
const ENDPOINTS: &str = "/api/v1/pools/{model}/endpoints";
const ENDPOINT: &str = "/api/v1/pools/{model}/endpoints/{endpoint}";
const ROUTING: &str = "/api/v1/routing/{model}";

/// All routes.
pub(crate) const ROUTES: &[Route] = &[
    page("/", Does::Page, "The status page. What it shows it asks of the routes below."),
    page("/page/{file}", Does::PageFile, "A file of the status page: its scripts and styles."),
    Route {
        access: Access::Open,
        ..read("/healthz", Does::Health, "Health", "This process runs.")
    },
    Route {
        access: Access::Open,
        ..read("/api/v1/openapi.json", Does::Document, "Any", "This document.")
    },
    Route {
        gives: Content::Text,
        ..read("/metrics", Does::Metrics, "", "The metrics page, in Prometheus' text form.")
    },
    read("/api/v1/pools", Does::ListPools, "Pools", "All pools."),
    creating(write(
        "POST",
        "/api/v1/pools",
        Does::CreatePool,
        (Content::Json("PoolConfig"), "Pool"),
        "Makes a pool, written as in the configuration file; without keys for its engines.",
    )),
    read(POOL, Does::ShowPool, "Pool", "One pool."),
    write(
        "PATCH",
        POOL,
        Does::PatchPool,
        (Content::Json("PoolPatch"), "Pool"),
        "Changes a pool; `null` resets a key to what the configuration says.",
    ),
    write("DELETE", POOL, Does::DeletePool, (Content::None, "Deleted"), "Deletes a pool."),
    read(ENDPOINTS, Does::ListPoolEndpoints, "Endpoints", "The endpoints of a pool."),
    creating(write(
        "POST",
        ENDPOINTS,
        Does::CreateEndpoint,
        (Content::Json("EndpointConfig"), "Endpoint"),
        "Adds an endpoint, written as in the configuration file.",
    )),
    read(ENDPOINT, Does::ShowEndpoint, "Endpoint", "One endpoint, by `host:port`."),
    write(
        "PATCH",
        ENDPOINT,
        Does::PatchEndpoint,
        (Content::Json("EndpointPatch"), "Endpoint"),
        "Changes an endpoint: `\"state\": \"drain\"` drains it; `null` resets a key.",
    ),
    write(
        "DELETE",
        ENDPOINT,
        Does::DeleteEndpoint,
        (Content::None, "Deleted"),
        "Takes an endpoint away: no new requests, and its events are followed no more.",
    ),
    read("/api/v1/endpoints", Does::ListEndpoints, "Endpoints", "The endpoints of all pools."),
    asking(
        Route {
            method: "POST",
            takes: Content::Json("Any"),
            ..read(
                "/api/v1/explain",
                Does::Explain,
                "Explanation",
                "What would be decided about a request with this body. Nothing is sent, committed, \
                 learned, pinned or logged.",
            )
        },
        &[Parameter {
            name: "path",
            kind: "string",
            about: "The API's path; `/v1/chat/completions` by default.",
        }],
    ),
    read("/api/v1/inventory", Does::Inventory, "Inventory", "How much of the caches is known."),
    asking(
        read(
            "/api/v1/inventory/{endpoint}",
            Does::Samples,
            "Samples",
            "Some blocks that an endpoint is known to hold.",
        ),
        &[Parameter { name: "limit", kind: "integer", about: "How many; 20 by default." }],
    ),
    read(
        "/api/v1/parity",
        Does::Parity,
        "Parity",
        "Whether prompts and caches are what they are taken for, and for each problem its cause \
         and what to do.",
    ),
    read(
        "/api/v1/controller",
        Does::Controller,
        "Controller",
        "How it stands with the weight controller; `off` where none is followed.",
    ),
    asking(
        read("/api/v1/decisions", Does::Decisions, "Decisions", "The latest decisions first."),
        &[
            Parameter { name: "limit", kind: "integer", about: "How many; 50 by default." },
            Parameter { name: "model", kind: "string", about: "Of this model only." },
        ],
    ),
    read("/api/v1/stats", Does::Stats, "Stats", "Counts of the last thirty days."),
    asking(
        read(
            "/api/v1/timeline",
            Does::Timeline,
            "Timeline",
            "The last half hour in steps: requests, times, cached tokens.",
        ),
        &[Parameter { name: "model", kind: "string", about: "Of this pool only." }],
    ),
    read(
        "/api/v1/config",
        Does::ShowConfig,
        "Any",
        "The effective configuration, without its secrets.",
    ),
    read(
        "/api/v1/config/dropped",
        Does::ListDropped,
        "Dropped",
        "Changes that are in effect no more, since a configuration left no place for them; the newest \
         first.",
    ),
    write(
        "POST",
        "/api/v1/config/reload",
        Does::Reload,
        (Content::None, "Reloaded"),
        "Reads the configuration file anew.",
    ),
    read("/api/v1/routing", Does::ListRouting, "RoutingList", "All routing settings."),
    asking(read(ROUTING, Does::ShowRouting, "Routing", "A model's routing settings."), &[TENANT]),
    asking(
        write(
            "PATCH",
            ROUTING,
            Does::PatchRouting,
            (Content::Json("RoutingPatch"), "Routing"),
            "Changes a model's routing settings; a model without any starts as `round_robin`.",
        ),
        &[TENANT],
    ),
    asking(
        write(
            "DELETE",
            ROUTING,
            Does::DeleteRouting,
            (Content::None, "Deleted"),
            "The model is routed as configured again.",
        ),
        &[TENANT],
    ),
    asking(
        read(
            "/api/v1/routing/{model}/stats",
            Does::RoutingStats,
            "RoutingStats",
            "A model's routing settings and counts.",
        ),
        &[TENANT],
    ),
];

/// A request that has no route.
#[derive(Clone, Debug)]
pub(crate) struct NotFound {
    pub(crate) error: ApiError,
    /// The methods that the path has.
    pub(crate) allow: Option<String>,
}

/// Whether a method asks for a route's.
fn is_method(asked: &Method, of_route: &str) -> bool {
    asked.as_str() == of_route || (asked == Method::HEAD && of_route == "GET")
}

/// The route of a request, and the values of its path.
pub(crate) fn find(
    method: &Method,
    asked: &str,
) -> Result<(&'static Route, Vec<String>), NotFound> {
    let mut allow: Vec<&str> = Vec::new();
    for route in ROUTES {
        let Some(values) = path::values(route.path, asked) else { continue };
        if is_method(method, route.method) {
            return Ok((route, values));
        }
        allow.push(route.method);
    }
    if allow.is_empty() {
        let why = "there is no such path; names with a `/` in them are written with `%2F`";
        return Err(NotFound { error: ApiError::not_found(why), allow: None });
    }
    if allow.contains(&"GET") {
        allow.push("HEAD");
    }
    let allow = allow.join(", ");
    let why = format!("this path has {allow}");
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why);
    Err(NotFound { error, allow: Some(allow) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_told_apart_and_found() {
        for route in ROUTES {
            let path = route.path.replace("{model}", "org%2Fm").replace("{endpoint}", "h:1");
            let path = path.replace("{file}", "page.js");
            let method: Method = route.method.parse().unwrap();
            let (found, values) = find(&method, &path).unwrap();
            assert_eq!((found.path, found.method), (route.path, route.method));
            assert_eq!(values.len(), route.path.matches('{').count());
        }
        let wrong = find(&Method::PUT, "/api/v1/pools").unwrap_err();
        assert_eq!(wrong.allow.as_deref(), Some("GET, POST, HEAD"));
        assert_eq!(wrong.error.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(find(&Method::GET, "/nope").unwrap_err().error.code, "not_found");
        assert!(find(&Method::HEAD, "/metrics").is_ok());
    }
}
