//! One connection of a client, from the handshake to its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

use super::hub::{Hub, Place};
use super::protocol::{Spoken, builder};
use super::settings::ListenSettings;
use super::stall::WriteStall;
use super::streams::{Answer, Open};
use super::tls::Tls;
use crate::app::App;
use crate::handle::handle;
use crate::moment::Moment;

/// What a connection that was just made gets, when a stop comes, to send its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// What requests of one connection share.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) app: Arc<App>,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Its address, for `x-forwarded-for`.
    pub(crate) address: HeaderValue,
    /// When what is under way has to be over. The connection's task passes it on.
    pub(crate) cut: Moment,
    hub: Arc<Hub>,
    begun: AtomicU64,
    open: AtomicU32,
    speaks_http2: AtomicBool,
}

impl Client {
    /// A request began.
    pub(super) fn began(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// A request ended.
    pub(super) fn ended(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }
}

/// Serves connections.
#[derive(Debug)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    app: Arc<App>,
    hub: Arc<Hub>,
    tls: Option<Arc<Tls>>,
    settings: ListenSettings,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl Connections {
    pub(super) fn new(
        app: Arc<App>,
        settings: &ListenSettings,
        hub: Arc<Hub>,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        Self(Arc::new(Shared { app, hub, tls, settings: settings.clone() }))
    }

    /// Serves a connection as a task of its own.
    pub(super) fn serve(&self, stream: TcpStream, peer: IpAddr, place: Place) {
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            // Held until the connection is gone.
            let _place = place;
            shared.connection(stream, peer).await;
        });
    }
}

impl Shared {
    async fn connection(&self, stream: TcpStream, peer: IpAddr) {
        let stream = WriteStall::new(stream, self.settings.write_stall);
        let Some(tls) = &self.tls else {
            let spoken = if self.settings.http2 { Spoken::Either } else { Spoken::Http1 };
            return self.http(stream, spoken, "http", peer).await;
        };
        let hub = &self.hub;
        let stopped = async {
            hub.stopped().await;
            tokio::time::sleep(FIRST_REQUEST).await;
        };
        let accepted = tokio::select! {
            accepted = tls.accept(stream) => accepted,
            () = stopped => None,
        };
        let Some((stream, h2)) = accepted else { return };
        let spoken = if h2 { Spoken::Http2 } else { Spoken::Http1 };
        self.http(stream, spoken, "https", peer).await;
    }

    async fn http<S>(&self, stream: S, spoken: Spoken, scheme: &'static str, peer: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let client = Arc::new(Client {
            app: Arc::clone(&self.app),
            scheme,
            address: address(peer),
            cut: self.app.cut.branch(),
            hub: Arc::clone(&self.hub),
            begun: AtomicU64::new(0),
            open: AtomicU32::new(0),
            speaks_http2: AtomicBool::new(false),
        });
        let served = Arc::clone(&client);
        let service = service_fn(move |request: Request<Incoming>| {
            let open = Open::new(Arc::clone(&served));
            async move {
                let is_http2 = request.version() == Version::HTTP_2;
                if is_http2 {
                    open.client().speaks_http2.store(true, Ordering::Relaxed);
                }
                let mut response = handle(open.client(), request).await;
                if !is_http2 && open.client().hub.is_stopping() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                Ok::<_, Infallible>(response.map(|body| Answer::new(body, open)))
            }
        });
        // Made for each connection: how long heads may be can change while the gateway runs.
        let builder = builder(&self.settings, self.app.max_head_bytes(), spoken);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut stopped = pin!(self.hub.stopped());
        let mut timer = pin!(tokio::time::sleep(self.settings.idle_timeout));
        let mut watch = Watch::new(self, &client);
        let (mut cut, mut is_cut) = (self.app.cut.awaited(), false);
        let ended = poll_fn(|cx| {
            if !is_cut && cut.poll(cx).is_ready() {
                is_cut = true;
                client.cut.come();
            }
            loop {
                if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                    return Poll::Ready(Some(ended));
                }
                match watch.look(cx, stopped.as_mut(), timer.as_mut()) {
                    Wish::GoOn => return Poll::Pending,
                    // To be polled again: it may have nothing left to do.
                    Wish::Finish => connection.as_mut().graceful_shutdown(),
                    Wish::End => return Poll::Ready(None),
                }
            }
        });
        match ended.await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(error, "connection ended"),
            None => tracing::debug!("connection ended: its client did not"),
        }
    }
}

/// What is to become of a connection.
enum Wish {
    GoOn,
    /// It takes no further requests; those in flight go on.
    Finish,
    /// It is dropped.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// A stop came before its first request.
    FirstRequest,
    Finishing,
}

/// Says when a connection ends: a stop, or idleness that HTTP itself does not end (HTTP/1.1 has a
/// timer of its own between requests). Costs two loads where nothing happened.
struct Watch<'a> {
    shared: &'a Shared,
    client: &'a Client,
    since: Instant,
    phase: Phase,
    /// Requests begun when the timer was set.
    begun: u64,
    /// Whether this task is woken by the stop, and by the timer.
    registered: bool,
    armed: bool,
}

impl<'a> Watch<'a> {
    fn new(shared: &'a Shared, client: &'a Client) -> Self {
        let since = Instant::now();
        let phase = Phase::Serving;
        Self { shared, client, since, phase, begun: 0, registered: false, armed: false }
    }

    fn look(
        &mut self,
        cx: &mut Context<'_>,
        stopped: Pin<&mut impl Future<Output = ()>>,
        mut timer: Pin<&mut Sleep>,
    ) -> Wish {
        if self.phase == Phase::Serving && self.is_stopped(cx, stopped) {
            let first = self.since + FIRST_REQUEST;
            if self.client.begun() > 0 || first <= Instant::now() {
                return self.finish(timer);
            }
            self.phase = Phase::FirstRequest;
            self.set(timer.as_mut(), first);
        }
        if self.phase == Phase::FirstRequest && self.client.begun() > 0 {
            return self.finish(timer);
        }
        while !self.armed || timer.is_elapsed() {
            self.armed = true;
            // A task that has used up its turn would not be registered.
            if pin!(unconstrained(timer.as_mut())).poll(cx).is_pending() {
                break;
            }
            let is_idle = self.client.is_idle() && self.client.begun() == self.begun;
            match self.phase {
                Phase::FirstRequest => return self.finish(timer),
                Phase::Serving if is_idle => return self.finish(timer),
                Phase::Serving => {
                    self.set(timer.as_mut(), Instant::now() + self.shared.settings.idle_timeout);
                }
                // What a client does not take of an answer that is over is nobody's loss. The
                // writes of HTTP/1.1 are watched one by one.
                Phase::Finishing if is_idle && self.speaks_http2() => return Wish::End,
                Phase::Finishing => {
                    self.set(timer.as_mut(), Instant::now() + self.shared.settings.write_stall);
                }
            }
        }
        Wish::GoOn
    }

    fn is_stopped(&mut self, cx: &mut Context<'_>, stopped: Pin<&mut impl Future>) -> bool {
        if self.registered {
            return self.shared.hub.is_stopping();
        }
        self.registered = true;
        pin!(unconstrained(stopped)).poll(cx).is_ready()
    }

    fn finish(&mut self, timer: Pin<&mut Sleep>) -> Wish {
        self.phase = Phase::Finishing;
        self.set(timer, Instant::now() + self.shared.settings.write_stall);
        Wish::Finish
    }

    fn set(&mut self, timer: Pin<&mut Sleep>, at: Instant) {
        timer.reset(at);
        self.begun = self.client.begun();
        self.armed = false;
    }

    fn speaks_http2(&self) -> bool {
        self.client.speaks_http2.load(Ordering::Relaxed)
    }
}

/// An address as a header's value. One of version 4 that came through a socket of version 6 is of
/// version 4.
fn address(peer: IpAddr) -> HeaderValue {
    // Digits, dots and colons: always a value.
    HeaderValue::from_str(&peer.to_canonical().to_string())
        .unwrap_or(HeaderValue::from_static("unknown"))
}
