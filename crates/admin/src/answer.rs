//! What each route does.

mod changes;
mod reads;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Map, Value, json};

use crate::control::Control;
use crate::error::ApiError;
use crate::openapi;
use crate::page::{self, PageFile};
use crate::path;
use crate::recent::KEPT;
use crate::routes::{Content, Does, Route};
use crate::version::Version;

/// A request whose caller may ask it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) route: &'static Route,
    /// The values of its path.
    pub(crate) values: Vec<String>,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

/// For answers that are no pages.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// An answer that is no error.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    kind: &'static str,
    /// What a browser may do with it.
    policy: &'static str,
    body: Bytes,
    /// The configuration that is shown.
    version: Option<Version>,
}

impl Answer {
    pub(crate) fn json(status: StatusCode, value: Value) -> Self {
        let body = Bytes::from(value.to_string());
        drop(value);
        Self { status, kind: "application/json", policy: NOTHING, body, version: None }
    }

    fn text(page: String) -> Self {
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        Self { status: StatusCode::OK, kind, policy: NOTHING, body: page.into(), version: None }
    }

    fn page(file: PageFile) -> Self {
        let PageFile { kind, text, .. } = file;
        let body = Bytes::from_static(text.as_bytes());
        Self { status: StatusCode::OK, kind, policy: page::POLICY, body, version: None }
    }

    pub(crate) fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static(self.kind);
        let policy = HeaderValue::from_static(self.policy);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, kind);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        if let Some(etag) = self.version.as_ref().and_then(Version::header) {
            headers.insert(header::ETAG, etag);
        }
        response
    }
}

/// Answers a request.
pub(crate) async fn answer(control: &dyn Control, asked: &Asked) -> Result<Answer, ApiError> {
    asked.check_query()?;
    let status = StatusCode::from_u16(asked.route.status).unwrap_or(StatusCode::OK);
    // Before anything is looked at: what changes meanwhile is another one.
    let mut version = asked.route.does.shows_config().then(|| control.state().version);
    let value = match asked.route.does {
        Does::Page => return Ok(Answer::page(page::INDEX)),
        Does::PageFile => return page_file(asked.value(0)),
        Does::Metrics => return Ok(Answer::text(control.metrics())),
        Does::Health => json!({"status": "ok"}),
        Does::Document => openapi::document(),
        Does::ListPools => reads::pools(control),
        Does::ShowPool => reads::pool(control, asked.value(0))?,
        Does::ListPoolEndpoints => reads::endpoints_of(control, asked.value(0))?,
        Does::ShowEndpoint => reads::endpoint(control, asked.value(0), asked.value(1))?,
        Does::ListEndpoints => reads::endpoints(control),
        Does::Inventory => reads::inventory(control),
        Does::Samples => {
            let limit = asked.number("limit", 20, reads::MAX_SAMPLES)?;
            reads::samples(control, asked.value(0), limit)?
        }
        Does::Parity => reads::parity(control),
        Does::Controller => control.controller(),
        Does::Decisions => {
            let limit = asked.number("limit", 50, KEPT)?;
            reads::decisions(control, limit, asked.query("model").as_deref())
        }
        Does::Stats => reads::stats(control).await?,
        Does::Timeline => reads::timeline(control, asked.query("model")).await?,
        Does::ShowConfig => reads::config(control)?,
        Does::ListDropped => reads::dropped(control),
        Does::ListRouting => reads::routing_list(control),
        Does::ShowRouting => {
            reads::routing(control, asked.value(0), asked.query("tenant").as_deref())?
        }
        Does::RoutingStats => {
            reads::routing_stats(control, asked.value(0), asked.query("tenant").as_deref()).await?
        }
        Does::Explain => {
            let path = asked.query("path").unwrap_or_else(|| "/v1/chat/completions".to_owned());
            control.explain(path, asked.parts.headers.clone(), asked.body.clone()).await?
        }
        Does::CreatePool
        | Does::PatchPool
        | Does::DeletePool
        | Does::CreateEndpoint
        | Does::PatchEndpoint
        | Does::DeleteEndpoint
        | Does::PatchRouting
        | Does::DeleteRouting
        | Does::Reload => {
            let (shown, made) = changes::change(control, asked).await?;
            version = Some(made);
            shown
        }
    };
    Ok(Answer { version, ..Answer::json(status, value) })
}

fn page_file(name: &str) -> Result<Answer, ApiError> {
    let found = page::find(name).map(Answer::page);
    found.ok_or_else(|| ApiError::not_found(format!("no file `{name}`")))
}

impl Asked {
    /// A value of the path.
    fn value(&self, place: usize) -> &str {
        self.values.get(place).map_or("", String::as_str)
    }

    fn query(&self, key: &str) -> Option<String> {
        path::of_query(self.parts.uri.query(), key)
    }

    /// A misspelt name would be taken for none.
    fn check_query(&self) -> Result<(), ApiError> {
        let known = |name: &&str| self.route.query.iter().any(|known| known.name == *name);
        match path::names(self.parts.uri.query()).find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(ApiError::invalid(name, "there is no such value of the query here")),
        }
    }

    fn number(&self, key: &str, usual: usize, most: usize) -> Result<usize, ApiError> {
        let Some(text) = self.query(key) else { return Ok(usual) };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| ApiError::invalid(key, format!("must be 1 to {most}")))
    }

    /// The body as JSON.
    fn json(&self) -> Result<Value, ApiError> {
        debug_assert!(self.route.takes != Content::None, "a route with a body");
        serde_json::from_slice(&self.body)
            .map_err(|error| ApiError::bad_json(format!("the body is no JSON: {error}")))
    }

    /// The body as a JSON object.
    fn object(&self) -> Result<Map<String, Value>, ApiError> {
        match self.json()? {
            Value::Object(map) => Ok(map),
            _ => Err(ApiError::bad_json("the body must be a JSON object")),
        }
    }
}
