//! Small, bounded questions to engines: what the background and the doctor ask them.

use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use kvasir_upstream::{Failure, Origin, Patience, Phase, Upstream};

/// The largest answer that is read; a busy vLLM's `/metrics` is some 60 KiB.
const MAX_ANSWER: usize = 8 << 20;
/// The largest answer with cache events: what is not read is lost.
const MAX_EVENTS: usize = 64 << 20;
/// How long an answer may take. Late answers say nothing about the engine's health.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
    upstream: Upstream,
    connect_timeout: Duration,
    headers: HeaderMap,
}

impl EngineClient {
    /// A client that gives up connecting after `connect_timeout`.
    #[must_use]
    pub fn new(connect_timeout: Duration) -> Self {
        Self { upstream: Upstream::default(), connect_timeout, headers: HeaderMap::new() }
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
        origin: &Origin,
        path: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        let mut question = Question::of(Method::GET, path)?;
        question.head(header::AUTHORIZATION, authorization);
        self.ask(origin, &question, ANSWER_TIMEOUT, MAX_ANSWER).await
    }

    /// The status and body of `POST path` with a JSON body, within `timeout`.
    ///
    /// # Errors
    /// As [`EngineClient::get`].
    pub async fn post_json(
        &self,
        origin: &Origin,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        let mut question = Question { body, ..Question::of(Method::POST, path)? };
        let json = HeaderValue::from_static("application/json");
        question.head(header::CONTENT_TYPE, Some(&json));
        self.ask(origin, &question, timeout, MAX_ANSWER).await
    }

    /// The status and body of a request without a body, whose answer may be large, and which is
    /// sent no second time: the first may have had an effect.
    pub(crate) async fn fetch(
        &self,
        method: Method,
        origin: &Origin,
        path: &str,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        let question = Question { repeatable: false, ..Question::of(method, path)? };
        self.ask(origin, &question, timeout, MAX_EVENTS).await
    }

    async fn ask(
        &self,
        origin: &Origin,
        question: &Question,
        timeout: Duration,
        most: usize,
    ) -> Result<(StatusCode, Bytes), ProbeError> {
        let request = || question.request(&self.headers);
        let patience = Patience { connect: self.connect_timeout, first_data: timeout };
        let exchange = async {
            let may_repeat = || question.repeatable;
            let sent = self.upstream.send(origin, patience, may_repeat, request).await;
            let started = sent.map_err(|failure| of_failure(&failure, timeout))?;
            let status = started.head.status;
            Ok((status, started.whole(most).await.map_err(ProbeError::Broken)?))
        };
        tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(ProbeError::Timeout(timeout)))
    }
}

/// What is asked.
struct Question {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    repeatable: bool,
}

impl Question {
    fn of(method: Method, path: &str) -> Result<Self, ProbeError> {
        let uri = path.parse().map_err(|error| ProbeError::Broken(format!("{path}: {error}")))?;
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        // What an engine may have begun to do is not asked of it twice.
        let repeatable = method == Method::GET;
        Ok(Self { method, uri, headers, body, repeatable })
    }

    fn head(&mut self, name: HeaderName, value: Option<&HeaderValue>) {
        if let Some(value) = value {
            self.headers.insert(name, value.clone());
        }
    }

    fn request(&self, further: &HeaderMap) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(further.clone());
        request
    }
}

fn of_failure(failure: &Failure, timeout: Duration) -> ProbeError {
    match failure.phase() {
        // Our own limit says nothing of the engine.
        Phase::Pool => ProbeError::Broken(failure.why().to_owned()),
        Phase::FirstData => ProbeError::Timeout(timeout),
        phase if phase.is_connect() => ProbeError::Connect(failure.why().to_owned()),
        _ => ProbeError::Broken(failure.why().to_owned()),
    }
}
