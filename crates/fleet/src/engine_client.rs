//! Small, bounded questions to engines: what the background and the doctor ask them.

use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// The largest answer that is read; a busy vLLM's `/metrics` is some 60 KiB.
const MAX_ANSWER: usize = 8 << 20;
/// The largest answer with cache events: what is not read is lost.
const MAX_EVENTS: usize = 64 << 20;
/// How long an answer may take. Late answers say nothing about the engine's health.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Below the 5 s after which vLLM's HTTP server closes idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Why an engine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No connection: the engine is not there.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// No complete answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The connection broke or what came is not HTTP.
    #[error("broken answer: {0}")]
    Broken(String),
    /// An answer with an unexpected status.
    #[error("{path} answered {status}")]
    Status {
        /// The path asked for.
        path: &'static str,
        /// The status.
        status: StatusCode,
    },
    /// An answer that does not say what it should.
    #[error("{path}: {why}")]
    Content {
        /// The path asked for.
        path: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// A client for questions to engines; cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineClient {
    client: Client<HttpConnector, Full<Bytes>>,
    headers: HeaderMap,
}

impl EngineClient {
    /// A client that gives up connecting after `connect_timeout`.
    #[must_use]
    pub fn new(connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(connector);
        Self { client, headers: HeaderMap::new() }
    }

    /// The same client, sending these headers with every question.
    #[must_use]
    pub fn with_headers(self, headers: HeaderMap) -> Self {
        Self { headers, ..self }
    }

    /// The status and body of `GET path`, within 5 s.
    ///
    /// # Errors
    /// [`ProbeError::Connect`], [`ProbeError::Timeout`] or [`ProbeError::Broken`]; any status is an
    /// answer.
    pub async fn get(
        &self,
        authority: &Authority,
        path: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        let mut request = request(Method::GET, authority, path, Bytes::new())?;
        if let Some(value) = authorization {
            request.headers_mut().insert(header::AUTHORIZATION, value.clone());
        }
        self.ask(request, ANSWER_TIMEOUT, MAX_ANSWER).await
    }

    /// The status and body of `POST path` with a JSON body, within `timeout`.
    ///
    /// # Errors
    /// As [`EngineClient::get`].
    pub async fn post_json(
        &self,
        authority: &Authority,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        let mut request = request(Method::POST, authority, path, body)?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        self.ask(request, timeout, MAX_ANSWER).await
    }

    /// The status and body of a request without a body, whose answer may be large.
    pub(crate) async fn fetch(
        &self,
        method: Method,
        authority: &Authority,
        path: &str,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        self.ask(request(method, authority, path, Bytes::new())?, timeout, MAX_EVENTS).await
    }

    async fn ask(
        &self,
        mut request: Request<Full<Bytes>>,
        timeout: Duration,
        most: usize,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let exchange = async {
            let response = self.client.request(request).await.map_err(|e| {
                let why = root_cause(&e);
                if e.is_connect() { ProbeError::Connect(why) } else { ProbeError::Broken(why) }
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, most)
                .collect()
                .await
                .map_err(|e| ProbeError::Broken(e.to_string()))?;
            Ok((head.status, body.to_bytes()))
        };
        tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(ProbeError::Timeout(timeout)))
    }
}

fn request(
    method: Method,
    authority: &Authority,
    path: &str,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, ProbeError> {
    Request::builder()
        .method(method)
        .uri(format!("http://{authority}{path}"))
        .body(Full::new(body))
        .map_err(|e| ProbeError::Broken(e.to_string()))
}

/// The innermost cause: "connection refused" says more than "client error (Connect)".
#[must_use]
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
