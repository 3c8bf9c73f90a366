//! The controller as it runs: its ports, and the tasks that ask, advise and look at the registry.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use kvasir_server_tls::TlsFiles;
use kvasir_tokens::TokenDigest;
use kvasir_upstream::Origin;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::advisor::{Advisor, AdvisorSettings};
use super::scrape;
use super::service::Services;
use crate::registry::{Registry, RegistryError};
use crate::transport;

/// How often the registry's file is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait between two looks whether an epoch is over.
const LONGEST_TICK: Duration = Duration::from_millis(250);
/// Connections to the metrics port at one time.
const MOST_READERS: usize = 32;
/// How long a head may take to come there.
const HEAD: Duration = Duration::from_secs(5);

/// Everything a controller is told.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    /// The registry's file.
    pub registry: PathBuf,
    /// Where gateways connect.
    pub grpc: SocketAddr,
    /// Where its metrics are.
    pub metrics: SocketAddr,
    /// How often engines are asked.
    pub scrape_interval: Duration,
    /// How long an epoch lasts, where that is not what the registry says.
    pub epoch: Option<Duration>,
    /// How it judges.
    pub advisor: AdvisorSettings,
    /// What gateways must show.
    pub token: Option<String>,
    /// TLS of the gRPC port.
    pub tls: Option<TlsFiles>,
    /// Where hosts without an address are looked up.
    pub gateway: Option<GatewaySource>,
    /// An id no other process has had.
    pub boot_id: String,
}

/// A gateway's admin API.
#[derive(Clone, Debug)]
pub struct GatewaySource {
    /// Its address.
    pub origin: Origin,
    /// The pool whose endpoints these are.
    pub pool: String,
    /// The token for reading.
    pub token: Option<String>,
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Its registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// Its TLS files.
    #[error("TLS: {0}")]
    Tls(String),
}

/// A controller that has its ports and does not serve yet.
#[derive(Debug)]
pub struct Controller {
    settings: ControllerSettings,
    advisor: Arc<Mutex<Advisor>>,
    grpc: TcpListener,
    metrics: TcpListener,
    tls: Option<Tls>,
}

/// What shakes hands on the gRPC port.
struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Controller {
    /// Reads the registry and binds the ports. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the registry or TLS's files cannot be used, or a port is taken.
    pub async fn bind(settings: ControllerSettings) -> Result<Self, ControllerError> {
        let registry = load(&settings)?;
        let tls =
            settings.tls.as_ref().map(|files| kvasir_server_tls::server_config(files, &[b"h2"]));
        let tls = tls.transpose().map_err(ControllerError::Tls)?;
        let tls = tls.map(|config| Tls(TlsAcceptor::from(Arc::new(config))));
        let grpc = listen(settings.grpc).await?;
        let metrics = listen(settings.metrics).await?;
        let advisor = Advisor::new(registry, settings.advisor, settings.boot_id.clone());
        Ok(Self { advisor: Arc::new(Mutex::new(advisor)), settings, grpc, metrics, tls })
    }

    /// Where gateways connect, and where the metrics are.
    #[must_use]
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.grpc.local_addr().ok()?, self.metrics.local_addr().ok()?))
    }

    /// Advises until it is dropped.
    pub async fn run(self) {
        let Self { settings, advisor, grpc, metrics, tls } = self;
        let start = Instant::now();
        let (snapshots, _) = watch::channel(None);
        let token = settings.token.as_ref().map(|token| TokenDigest::of(token.as_bytes()));
        let services =
            Services { advisor: Arc::clone(&advisor), snapshots: snapshots.clone(), token };
        let asking = scrape::engines(Arc::clone(&advisor), settings.scrape_interval, start);
        let looking = async {
            match settings.gateway.clone() {
                Some(source) => {
                    scrape::gateway(Arc::clone(&advisor), source, settings.scrape_interval).await;
                }
                None => std::future::pending().await,
            }
        };
        let advising = async {
            loop {
                let snapshot = advisor.lock().tick(start.elapsed(), unix_ms());
                if let Some(snapshot) = snapshot {
                    tracing::debug!(epoch = snapshot.epoch, "a snapshot is given");
                    snapshots.send_replace(Some(snapshot));
                }
                let epoch = advisor.lock().registry().epoch;
                tokio::time::sleep((epoch / 10).min(LONGEST_TICK)).await;
            }
        };
        let answer = move |request| services.clone().answer(request);
        tokio::join!(
            asking,
            looking,
            advising,
            follow_file(&settings, &advisor),
            transport::serve(grpc, tls.map(|tls| tls.0), answer),
            serve_metrics(metrics, Arc::clone(&advisor), start),
        );
    }
}

fn load(settings: &ControllerSettings) -> Result<Registry, RegistryError> {
    let registry = Registry::load(&settings.registry)?;
    Ok(Registry { epoch: settings.epoch.unwrap_or(registry.epoch), ..registry })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ControllerError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| ControllerError::Listen { address, why: error.to_string() })
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Takes up the registry whenever its file is another one, for ever. One that cannot be used changes
/// nothing.
async fn follow_file(settings: &ControllerSettings, advisor: &Mutex<Advisor>) {
    let mut seen = stamp(&settings.registry).await;
    loop {
        tokio::time::sleep(LOOK).await;
        let now = stamp(&settings.registry).await;
        if now.is_none() || now == seen {
            continue;
        }
        seen = now;
        let settings = settings.clone();
        let loaded = tokio::task::spawn_blocking(move || load(&settings)).await;
        match loaded {
            Ok(Ok(registry)) => {
                tracing::info!(hosts = registry.hosts.len(), "the new registry is in effect");
                advisor.lock().take_registry(registry);
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "the new registry cannot be used: the old one stays");
                advisor.lock().note_reload_failure();
            }
            Err(error) => tracing::error!(%error, "the registry is not read"),
        }
    }
}

/// What tells one state of the file from another.
async fn stamp(path: &Path) -> Option<(Option<SystemTime>, u64)> {
    let metadata = tokio::task::spawn_blocking({
        let path = path.to_owned();
        move || std::fs::metadata(path)
    });
    let metadata = metadata.await.ok()?.ok()?;
    Some((metadata.modified().ok(), metadata.len()))
}

async fn serve_metrics(listener: TcpListener, advisor: Arc<Mutex<Advisor>>, start: Instant) {
    let places = Arc::new(Semaphore::new(MOST_READERS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(LONGEST_TICK).await;
            continue;
        };
        let advisor = Arc::clone(&advisor);
        let answer = hyper::service::service_fn(move |request: Request<Incoming>| {
            let response = metrics_page(&request, &advisor, start);
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer);
            // Whoever leaves early has nothing to be told.
            let _ = served.await;
            drop(place);
        });
    }
}

fn metrics_page(
    request: &Request<Incoming>,
    advisor: &Mutex<Advisor>,
    start: Instant,
) -> Response<Full<Bytes>> {
    let (status, text) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, advisor.lock().page(start.elapsed())),
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
