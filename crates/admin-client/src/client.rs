//! One question after the other, each with a deadline and a bound.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use kvasir_upstream::{Failure, Origin, Patience, Phase, Upstream, bearer as shown};
use serde_json::Value;

use crate::document;
use crate::error::{AskError, Refusal};
use crate::path::ApiPath;

/// The largest answer that is read: the metrics page of a thousand endpoints is some 10 MiB.
const MAX_ANSWER: usize = 64 << 20;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take; the API itself gives up after 10 s.
const ANSWER: Duration = Duration::from_secs(15);

/// A token that no header can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is empty, or has characters that a header cannot carry")]
pub struct BadToken;

/// A gateway's admin API, to somebody with a token or without.
#[derive(Clone, Debug)]
pub struct AdminClient {
    upstream: Upstream,
    origin: Origin,
    authorization: Option<HeaderValue>,
}

impl AdminClient {
    /// The API at `origin`, asked with this bearer token.
    ///
    /// # Errors
    /// A token that is none.
    pub fn new(origin: Origin, token: Option<&str>) -> Result<Self, BadToken> {
        let authorization = token.map(bearer).transpose()?;
        Ok(Self { upstream: Upstream::default(), origin, authorization })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        self.origin.url()
    }

    /// What a route shows.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn get(&self, path: &ApiPath) -> Result<Value, AskError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// A page that is no JSON, such as `/metrics`.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn text(&self, path: &ApiPath) -> Result<String, AskError> {
        let body = self.answered(Method::GET, path, Bytes::new()).await?;
        String::from_utf8(body.into()).map_err(|_| self.not_admin("its answer is no text"))
    }

    /// Sends a body of JSON, or none, and reads what came of it. Changes are sent once.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn send(
        &self,
        method: Method,
        path: &ApiPath,
        body: Bytes,
    ) -> Result<Value, AskError> {
        let body = self.answered(method, path, body).await?;
        serde_json::from_slice(&body)
            .map_err(|error| self.not_admin(&format!("{path} answers with no JSON: {error}")))
    }

    /// The body of a good answer.
    async fn answered(
        &self,
        method: Method,
        path: &ApiPath,
        body: Bytes,
    ) -> Result<Bytes, AskError> {
        let (status, answer) = self.exchange(method.clone(), path, body).await?;
        if status.is_success() {
            return Ok(answer);
        }
        let is_unknown = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status);
        match Refusal::of(status, &answer) {
            Some(refusal) if !is_unknown => Err(refusal.into()),
            refusal => Err(self.told_by_document(&method, path, status, refusal).await),
        }
    }

    /// Whether the route, the thing it names, or the API is not there.
    async fn told_by_document(
        &self,
        method: &Method,
        path: &ApiPath,
        status: StatusCode,
        refusal: Option<Refusal>,
    ) -> AskError {
        let place = ApiPath::of(&["openapi.json"]);
        let asked = self.exchange(Method::GET, &place, Bytes::new()).await;
        let document: Value = match asked {
            Ok((_, answer)) => serde_json::from_slice(&answer).unwrap_or_default(),
            // It cannot be told, but what was answered stays so.
            Err(error) => return refusal.map_or(error, AskError::from),
        };
        let url = self.url().to_owned();
        match (document::version(&document), refusal) {
            (None, _) => self.not_admin(&format!("{path} answers with status {status}")),
            (Some(version), _) if !document::has_route(&document, method.as_str(), path.path()) => {
                let (route, version) = (format!("{method} {}", path.path()), version.to_owned());
                AskError::NoRoute { url, route, version }
            }
            (Some(_), Some(refusal)) => refusal.into(),
            (Some(_), None) => {
                AskError::Broken { url, why: format!("{path} answers with status {status}") }
            }
        }
    }

    fn not_admin(&self, why: &str) -> AskError {
        AskError::NotAdmin { url: self.url().to_owned(), why: why.to_owned() }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &ApiPath,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let url = || self.url().to_owned();
        let uri: Uri = path.as_str().parse().map_err(|error| AskError::Broken {
            url: url(),
            why: format!("the path {path} cannot be asked for: {error}"),
        })?;
        let repeatable = method == Method::GET;
        let request = || self.request(&method, &uri, &body);
        let patience = Patience { connect: CONNECT, first_data: ANSWER };
        let exchange = async {
            let sent = self.upstream.send(&self.origin, patience, || repeatable, request).await;
            let started = sent.map_err(|failure| of_failure(&failure, url()))?;
            let status = started.head.status;
            let read = started.whole(MAX_ANSWER).await;
            Ok((status, read.map_err(|why| AskError::Broken { url: url(), why })?))
        };
        let whole = CONNECT + ANSWER;
        let late = || AskError::Timeout { url: url(), after: whole };
        tokio::time::timeout(whole, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    fn request(&self, method: &Method, uri: &Uri, body: &Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        if let Some(value) = &self.authorization {
            headers.insert(header::AUTHORIZATION, value.clone());
        }
        if !body.is_empty() {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        request
    }
}

fn bearer(token: &str) -> Result<HeaderValue, BadToken> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BadToken);
    }
    shown(token).map_err(|_| BadToken)
}

fn of_failure(failure: &Failure, url: String) -> AskError {
    let why = failure.why().to_owned();
    match failure.phase() {
        Phase::FirstData => AskError::Timeout { url, after: ANSWER },
        Phase::NotHttp => AskError::NotAdmin { url, why },
        phase if phase.is_connect() => AskError::Connect { url, why },
        _ => AskError::Broken { url, why },
    }
}
