//! What every request shares.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use kvasir_fleet::{Fleet, RetryLimits};
use kvasir_metrics::{header, sample};
use kvasir_upstream::Upstream;
use tokio::sync::Semaphore;

use crate::explain::Explaining;
use crate::forwarded::ForwardedHeaders;
use crate::keys::ClientKeys;
use crate::moment::Moment;
use crate::observer::Observer;
use crate::owners::Owners;
use crate::spans::Spans;
use crate::split::Rooms;

/// The usual size limit of a request's head, in bytes.
pub const DEFAULT_HEAD_BYTES: usize = 400 << 10;

/// Renders the process-wide metric families.
pub type MetricsPage = Arc<dyn Fn() -> String + Send + Sync>;

/// How the data plane behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The largest request body, in bytes.
    pub max_body_bytes: usize,
    /// The largest head of a request, in bytes, on connections that are made from now on; longer ones are
    /// answered with 431. At least 8192.
    pub max_head_bytes: usize,
    /// Whether answers carry `x-kvasir-endpoint` and `x-kvasir-reason`, of pools without an opinion.
    pub decision_headers: bool,
    /// The tokens that turn them on for one request, which shows one in `x-kvasir-debug`; `None` for
    /// none.
    pub debug_tokens: Option<Arc<ClientKeys>>,
    /// Paths forwarded by load: exact, or a prefix ending in `*`.
    pub forward_paths: Vec<String>,
    /// How many prompts may be tokenised at one time.
    pub tokenizer_threads: usize,
    /// What engines are told of where requests come from.
    pub forwarded_headers: ForwardedHeaders,
    /// The API keys of clients; `None` lets everybody in.
    pub client_keys: Option<Arc<ClientKeys>>,
    /// When a request is sent to another engine.
    pub retries: Retries,
}

/// When a request is sent to another engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Engines that may get one request, the first included; those that could not be connected to
    /// got nothing of it and do not count.
    pub attempts: u32,
    /// How many retries a pool's requests may make together.
    pub budget: RetryLimits,
    /// The longest `retry-after` that is waited for.
    pub longest_wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        let budget = RetryLimits { percent: 20, min_per_s: 10 };
        Self { attempts: 3, budget, longest_wait: Duration::from_secs(2) }
    }
}

/// The data plane's shared state.
pub struct App {
    now: ArcSwap<Now>,
    stopping: AtomicBool,
    /// When what is under way has to be over.
    pub(crate) cut: Arc<Moment>,
    tokenizer_threads: usize,
    /// Connections to engines: of the one runtime there is.
    pub(crate) upstream: Upstream,
    pub(crate) permits: Permits,
    /// For requests that are only explained: those that are served never wait for them.
    pub(crate) explaining: Explaining,
    pub(crate) owners: Arc<Owners>,
    /// Numbers of split requests.
    pub(crate) rooms: Rooms,
    metrics_page: MetricsPage,
    /// Who else is told of requests.
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// `None` where requests are not traced.
    pub(crate) spans: Option<Spans>,
}

/// How much may be read and tokenised off the async threads at one time.
#[derive(Debug)]
pub(crate) struct Permits {
    pub(crate) tokenizers: Arc<Semaphore>,
    /// For reading long bodies and headers, which must not wait for tokenizers.
    pub(crate) readers: Arc<Semaphore>,
}

impl Permits {
    pub(crate) fn new(threads: usize) -> Self {
        let permits = || Arc::new(Semaphore::new(threads));
        Self { tokenizers: permits(), readers: permits() }
    }
}

/// What a request goes by from its beginning to its end, whatever is reloaded meanwhile.
#[derive(Debug)]
pub(crate) struct Now {
    pub(crate) settings: Settings,
    pub(crate) fleet: Arc<Fleet>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("settings", &self.now.load().settings).finish_non_exhaustive()
    }
}

impl App {
    /// A data plane over `fleet`.
    #[must_use]
    pub fn new(settings: Settings, fleet: Fleet, metrics_page: MetricsPage) -> Self {
        let tokenizer_threads = settings.tokenizer_threads.max(1);
        Self {
            now: ArcSwap::from_pointee(Now { settings, fleet: Arc::new(fleet) }),
            stopping: AtomicBool::new(false),
            cut: Arc::default(),
            tokenizer_threads,
            upstream: Upstream::default(),
            permits: Permits::new(tokenizer_threads),
            explaining: Explaining::default(),
            owners: Arc::default(),
            rooms: Rooms::default(),
            metrics_page,
            observer: None,
            spans: None,
        }
    }

    /// The same, tracing its requests.
    #[must_use]
    pub fn with_spans(self, spans: Option<Spans>) -> Self {
        Self { spans, ..self }
    }

    /// The same, with somebody who is told of its requests.
    #[must_use]
    pub fn with_observer(self, observer: Option<Arc<dyn Observer>>) -> Self {
        Self { observer, ..self }
    }

    /// Sends the spans that wait to be sent, for at most `patience`.
    pub async fn flush_spans(&self, patience: Duration) {
        if let Some(spans) = &self.spans {
            spans.flush(patience).await;
        }
    }

    /// What a request that begins now goes by.
    pub(crate) fn now(&self) -> Arc<Now> {
        self.now.load_full()
    }

    /// The largest head of a request on a connection that is made now.
    pub(crate) fn max_head_bytes(&self) -> usize {
        self.now.load().settings.max_head_bytes
    }

    /// The fleet now.
    #[must_use]
    pub fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.now.load().fleet)
    }

    /// Routes new requests over another fleet; requests in flight keep theirs.
    pub fn replace_fleet(&self, fleet: Fleet) {
        let settings = self.now.load().settings.clone();
        self.reload(settings, fleet);
    }

    /// The same by other settings. How many prompts may be tokenised at one time stays as it was.
    pub fn reload(&self, settings: Settings, fleet: Fleet) {
        let fleet = Arc::new(fleet);
        self.now.store(Arc::new(Now { settings, fleet: Arc::clone(&fleet) }));
        fleet.is_in_use();
    }

    /// Says at `/readyz` that no new connections should come: the gateway is about to stop.
    pub fn announce_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Ends what is under way, because the gateway stops: answers that have begun as those that break
    /// do, requests without one with 503. So are requests that come later.
    pub fn cut_off(&self) {
        self.cut.come();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The whole `/metrics` page.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut page = (self.metrics_page)();
        if !page.is_empty() && !page.ends_with('\n') {
            page.push('\n');
        }
        self.now.load().fleet.render_metrics(&mut page);
        kvasir_upstream::render(&mut page, &[&self.upstream]);
        self.render_gauges(&mut page);
        page
    }

    /// How many tokenizer threads there are, how many are at work, and the rooms in use.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn render_gauges(&self, page: &mut String) {
        let threads = self.tokenizer_threads;
        let busy = threads.saturating_sub(self.permits.tokenizers.available_permits());
        let rooms = usize::try_from(self.rooms.live()).unwrap_or(usize::MAX);
        for (name, value) in [
            ("kvasir_pd_rooms", rooms),
            ("kvasir_tokenizer_threads", threads),
            ("kvasir_tokenizer_threads_busy", busy),
        ] {
            header(page, name);
            sample(page, name, &[], value as f64);
        }
    }
}
