//! What a request goes through: who asks, its body, what its route does, and the audit of changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::body::Incoming;
use parking_lot::RwLock;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::answer::{self, Answer, Asked};
use crate::audit::{Audit, Entry};
use crate::auth::{Access, Guard, Role};
use crate::connections::Conversation;
use crate::control::Control;
use crate::counts;
use crate::error::ApiError;
use crate::routes;

/// The largest body, in bytes.
const MAX_BODY: usize = 1 << 20;
/// How long a request may take, its body and its answer's making included.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all requests share.
pub(crate) struct Shared {
    guard: Arc<RwLock<Guard>>,
    audit: Audit,
    control: Arc<dyn Control>,
}

impl Shared {
    pub(crate) fn new(guard: Arc<RwLock<Guard>>, audit: Audit, control: Arc<dyn Control>) -> Self {
        Self { guard, audit, control }
    }

    /// Who is let in: it can change while the API is served.
    pub(crate) fn guard(&self) -> Arc<RwLock<Guard>> {
        Arc::clone(&self.guard)
    }

    /// Answers a request.
    pub(crate) async fn respond(
        &self,
        remote: SocketAddr,
        conversation: &Conversation,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let began = std::time::Instant::now();
        let (parts, body) = request.into_parts();
        let found = routes::find(&parts.method, parts.uri.path());
        let allow = match &found {
            Err(error) => error.allow.clone(),
            Ok(_) => None,
        };
        let known = found.as_ref().ok().map(|(route, _)| *route);
        let answered = match found {
            Ok((route, values)) => {
                let asked = Asked { route, values, parts, body: Bytes::new() };
                self.run(remote, conversation, asked, body).await
            }
            Err(error) => {
                let browser = self.guard.read().admit(Access::Open, &parts.headers);
                if let Err(refused) = &browser {
                    counts::denied(refused);
                }
                Err(browser.err().unwrap_or(error.error))
            }
        };
        let mut response = match answered {
            Ok(answer) => answer.response(),
            Err(error) => refusal(&error),
        };
        if let Some(allow) = allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let no_sniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, no_sniff);
        counts::answered(known, response.status(), began);
        response
    }

    async fn run(
        &self,
        remote: SocketAddr,
        conversation: &Conversation,
        mut asked: Asked,
        body: Incoming,
    ) -> Result<Answer, ApiError> {
        let until = Instant::now() + PATIENCE;
        let changes = asked.route.access == Access::Write;
        let role = match self.guard.read().admit(asked.route.access, &asked.parts.headers) {
            Ok(role) => role,
            Err(error) => {
                counts::denied(&error);
                if changes {
                    counts::changed(asked.route, Err(&error));
                    self.audit.denied(asked.entry(None, remote, Err(&error)));
                }
                return Err(error);
            }
        };
        if role != Role::Anybody {
            conversation.trust();
        }
        let read = timeout_at(until, Limited::new(body, MAX_BODY).collect()).await;
        let read = read
            .map_err(|_| too_long("sending the body took"))
            .and_then(|read| read.map(Collected::to_bytes).map_err(|error| bad_body(&*error)));
        let refused = match read {
            Ok(body) => {
                asked.body = body;
                None
            }
            Err(error) => Some(error),
        };
        match refused {
            Some(error) => {
                if changes {
                    counts::changed(asked.route, Err(&error));
                    self.audit.changed(asked.entry(Some(role), remote, Err(&error))).await;
                }
                Err(error)
            }
            None if changes => self.change(role, remote, asked, until).await,
            None => {
                let answer = timeout_at(until, answer::answer(&*self.control, &asked)).await;
                answer.unwrap_or_else(|_| Err(too_long("it took")))
            }
        }
    }

    /// A change goes on to its end, whoever still waits for it, and its line says how it ended.
    async fn change(
        &self,
        role: Role,
        remote: SocketAddr,
        asked: Asked,
        until: Instant,
    ) -> Result<Answer, ApiError> {
        let (control, audit, asked) =
            (Arc::clone(&self.control), self.audit.clone(), Arc::new(asked));
        let (sender, answer) = oneshot::channel();
        tokio::spawn(async move {
            let making = Arc::clone(&asked);
            let made = tokio::spawn(async move { answer::answer(&*control, &making).await });
            let made = made.await.unwrap_or_else(|_| Err(broke_off()));
            let result = made.as_ref().map(|answer| answer.status.as_u16());
            counts::changed(asked.route, result);
            audit.changed(asked.entry(Some(role), remote, result)).await;
            // Nobody may be there any more.
            drop(sender.send(made));
        });
        match timeout_at(until, answer).await {
            Ok(Ok(made)) => made,
            Ok(Err(_)) => Err(broke_off()),
            Err(_) => {
                let why = "the change is still being made; the audit will say how it ended";
                Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", why))
            }
        }
    }
}

impl Asked {
    fn entry(
        &self,
        role: Option<Role>,
        remote: SocketAddr,
        result: Result<u16, &ApiError>,
    ) -> Entry {
        let request = (&self.parts.method, self.parts.uri.path());
        Entry::of(role, remote, request, &self.body, result)
    }
}

fn too_long(what: &str) -> ApiError {
    let why = format!("{what} longer than {} s", PATIENCE.as_secs());
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", why)
}

fn broke_off() -> ApiError {
    let why = "it broke off: the log says where";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why)
}

fn bad_body(error: &(dyn std::error::Error + 'static)) -> ApiError {
    if error.is::<http_body_util::LengthLimitError>() {
        let why = format!("the body is larger than {MAX_BODY} bytes");
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why);
    }
    ApiError::new(StatusCode::BAD_REQUEST, "bad_body", format!("the body broke off: {error}"))
}

fn refusal(error: &ApiError) -> Response<Full<Bytes>> {
    let mut response = Answer::json(error.status, error.body()).response();
    if error.status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"kvasir-admin\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    if error.status == StatusCode::PAYLOAD_TOO_LARGE {
        // The rest of the body is not read.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
