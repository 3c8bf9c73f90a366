//! A gateway in this process.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Uri;
use kvasir_balance::{PolicyKind, SelectionSpec};
use kvasir_demo::StagedModel;
use kvasir_fleet::{
    BlockIdentity, EndpointSpec, Fleet, FleetSpec, ParityMode, PoolSpec, PromptState,
    RankAddressingKind, TokenSpec,
};
use kvasir_inventory::{Inventory, Limits};
use kvasir_kv_hash::KeySpace;
use kvasir_proxy::{App, ListenSettings, Listener, Settings, serve};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Engines in this process answer at once; a machine may be busy.
const READY_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
const GRACE: Duration = Duration::from_secs(1);

/// A gateway over one pool. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Gateway {
    url: String,
    app: Arc<App>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Gateway {
    /// Starts it on a free loopback port. The engines are known by their addresses only: they are
    /// asked for the rest.
    pub(super) async fn start(
        policy: PolicyKind,
        model: &StagedModel,
        engines: &[String],
        seed: u64,
    ) -> Result<Self> {
        let mut secret = [0; KeySpace::SECRET_LEN];
        getrandom::fill(&mut secret).context("the operating system gives no random bytes")?;
        let inventory = Arc::new(Inventory::new(KeySpace::new(secret), Limits::default()));
        let pool = PoolSpec {
            model: model.name().to_owned(),
            aliases: Vec::new(),
            decision_headers: None,
            selection: SelectionSpec::of(policy),
            tokenizer_dir: Some(model.staged().to_owned()),
            authorization: None,
            // The engines' own work is what is shown.
            tokens: TokenSpec { parity: ParityMode::Off, ..TokenSpec::default() },
            rank_addressing: RankAddressingKind::None,
            identity: BlockIdentity::Tokens,
            timeouts: kvasir_fleet::Timeouts::default(),
            admission: None,
            split: None,
            endpoints: engines.iter().map(|url| endpoint(url)).collect::<Result<_>>()?,
        };
        let connect_timeout = Duration::from_secs(2);
        let scrape_interval = Duration::from_secs(1);
        let pools = vec![pool];
        let decision_log = None;
        let health = kvasir_fleet::HealthSpec::default();
        let spec =
            FleetSpec { pools, scrape_interval, connect_timeout, seed, decision_log, health };
        let fleet = Fleet::start(spec, inventory)?;
        let settings = Settings {
            max_body_bytes: 1 << 20,
            max_head_bytes: kvasir_proxy::DEFAULT_HEAD_BYTES,
            decision_headers: true,
            debug_tokens: None,
            forward_paths: Vec::new(),
            tokenizer_threads: std::thread::available_parallelism().map_or(1, usize::from),
            forwarded_headers: kvasir_proxy::ForwardedHeaders::default(),
            client_keys: None,
            retries: kvasir_proxy::Retries::default(),
        };
        // The fleet's own families are on the page all the same.
        let app = Arc::new(App::new(settings, fleet, Arc::new(String::new)));
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = Listener::bind(&ListenSettings::at(address));
        let listener = listener.context("no port for the gateway")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        let until = async move {
            // A sender that is gone means the same.
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve(Arc::clone(&app), listener, until, GRACE));
        Ok(Self { url, app, stop, task })
    }

    /// Its address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Waits until it has a tokenizer, and knows every engine and follows its events.
    pub(super) async fn ready(&self) -> Result<()> {
        let begin = Instant::now();
        while let Some(missing) = self.missing() {
            if begin.elapsed() > READY_WITHIN {
                bail!("the gateway is not ready: {missing}");
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    fn missing(&self) -> Option<String> {
        let fleet = self.app.fleet();
        for pool in fleet.pools() {
            match &*pool.prompts().state() {
                PromptState::Ready(_) => {}
                PromptState::Pending => return Some("the tokenizer is being loaded".to_owned()),
                PromptState::Missing(why) => return Some(why.to_string()),
            }
        }
        fleet.endpoints().iter().find_map(|endpoint| {
            let url = endpoint.name();
            match (endpoint.card(), endpoint.unreachable()) {
                (_, Some(why)) => Some(format!("{url}: {why}")),
                (None, None) => Some(format!("{url} has not said what it serves")),
                (Some(_), None) => {
                    let trust = endpoint.trust();
                    (!trust.credits()).then(|| format!("events of {url}: {trust}"))
                }
            }
        })
    }

    /// Ends it and waits for that.
    pub(super) async fn stop(self) {
        let Self { stop, task, .. } = self;
        // Gone already is what is wanted.
        let _ = stop.send(());
        let ended = match task.await {
            Ok(ended) => ended.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = ended {
            super::note(&format!("the gateway ended badly: {error}"));
        }
    }
}

fn endpoint(url: &str) -> Result<EndpointSpec> {
    let uri: Uri = url.parse().with_context(|| format!("engine address {url}"))?;
    let authority = uri.authority().cloned();
    let authority = authority.with_context(|| format!("no host in engine address {url}"))?;
    Ok(EndpointSpec::at(authority))
}
