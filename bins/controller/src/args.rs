//! The command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use http::Uri;
use kvasir_advice::controller::weights::WeightSettings;
use kvasir_advice::controller::{AdvisorSettings, ControllerSettings, GatewaySource};
use kvasir_files::read_small_file;
use kvasir_server_tls::TlsFiles;
use kvasir_tokens::{BYTES, is_token};
use kvasir_upstream::Origin;

use crate::environment::{address, or_variable, seconds, tell_without_effect, variable};

/// The largest file of a token, in bytes.
const MOST_TOKEN_FILE: usize = 64 << 10;

/// Advises gateways how much of its configured weight each engine should count, in fleets of unlike GPUs.
#[derive(Debug, Parser)]
#[command(name = "kvasir-controller", version)]
pub(crate) struct Args {
    /// The registry of engines (YAML). Default: `AICTRL_REGISTRY`, else /etc/loxilb/ai-controller.yaml.
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Where gateways connect. Default: `AICTRL_GRPC_ADDR`, else 127.0.0.1:18856.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    grpc: Option<SocketAddr>,
    /// Where /metrics and /healthz are. Default: `AICTRL_METRICS_ADDR`, else 127.0.0.1:18857.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// Seconds between snapshots. Default: `AICTRL_EPOCH_PERIOD_SEC`, else what the registry says, else 10.
    #[arg(long, value_name = "SECONDS")]
    epoch_s: Option<f64>,
    /// Seconds between two looks at an engine. Default: `AICTRL_SCRAPE_INTERVAL_SEC`, else 5.
    #[arg(long, value_name = "SECONDS")]
    scrape_interval_s: Option<f64>,
    /// Seconds without a page until an engine is stale. Default: `AICTRL_STALE_BUDGET_SEC`, else 15.
    #[arg(long, value_name = "SECONDS")]
    stale_budget_s: Option<f64>,
    /// The share of what is new in averages. Default: `AICTRL_EWMA_ALPHA`, else 0.3.
    #[arg(long, value_name = "SHARE")]
    alpha: Option<f64>,
    /// Points by which an average must move to change a weight. Default: `AICTRL_DEAD_BAND`, else 5.
    #[arg(long, value_name = "POINTS")]
    dead_band: Option<f64>,
    /// The most points a weight changes at once. Default: `AICTRL_MAX_STEP_PCT`, else 20.
    #[arg(long, value_name = "POINTS")]
    max_step: Option<f64>,
    /// The file of the token that gateways must show. None by default.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificate chain of the gRPC port; plain text without it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities one of which gateways' certificates must be of.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// A gateway's admin API, where hosts without an address are looked up.
    #[arg(long, value_name = "URL", requires = "gateway_pool")]
    gateway: Option<Uri>,
    /// The model of the pool there.
    #[arg(long, value_name = "MODEL", requires = "gateway")]
    gateway_pool: Option<String>,
    /// The file of the token for reading there.
    #[arg(long, value_name = "FILE", requires = "gateway")]
    gateway_token_file: Option<PathBuf>,
}

impl Args {
    /// All of it, with what the environment says where it says nothing.
    pub(crate) fn settings(&self) -> Result<ControllerSettings> {
        tell_without_effect()?;
        let default = PathBuf::from("/etc/loxilb/ai-controller.yaml");
        let registry = or_variable(self.registry.clone(), "AICTRL_REGISTRY", default)?;
        let grpc = listen(self.grpc, "AICTRL_GRPC_ADDR", 18856)?;
        let metrics = listen(self.metrics, "AICTRL_METRICS_ADDR", 18857)?;
        let epoch = match (self.epoch_s, variable("AICTRL_EPOCH_PERIOD_SEC")?) {
            (None, None) => None,
            (flag, _) => {
                let name = "AICTRL_EPOCH_PERIOD_SEC";
                Some(seconds(or_variable(flag, name, 0.0)?, "--epoch-s")?)
            }
        };
        let scrape = or_variable(self.scrape_interval_s, "AICTRL_SCRAPE_INTERVAL_SEC", 5.0)?;
        let token = self.token_file.as_deref().map(token).transpose()?;
        let tls = self.tls();
        let private = is_private(grpc);
        if !private && (token.is_none() || tls.is_none()) {
            tracing::warn!(address = %grpc, "the gRPC port is reached from anywhere, without TLS or without a token");
        }
        Ok(ControllerSettings {
            registry,
            grpc,
            metrics,
            scrape_interval: seconds(scrape, "--scrape-interval-s")?,
            epoch,
            advisor: AdvisorSettings { weights: self.weights()? },
            token,
            tls,
            gateway: self.gateway()?,
            boot_id: boot_id()?,
        })
    }

    fn weights(&self) -> Result<WeightSettings> {
        let default = WeightSettings::default();
        let alpha = or_variable(self.alpha, "AICTRL_EWMA_ALPHA", default.alpha)?;
        if !(alpha > 0.0 && alpha <= 1.0) {
            bail!("--alpha: {alpha} is not above 0 and at most 1");
        }
        let points = |flag, name, default, shown: &str| {
            let points: f64 = or_variable(flag, name, default)?;
            match (0.0..=100.0).contains(&points) {
                true => Ok(points),
                false => bail!("{shown}: {points} is not 0 to 100"),
            }
        };
        let dead_band =
            points(self.dead_band, "AICTRL_DEAD_BAND", default.dead_band, "--dead-band")?;
        let max_step =
            points(self.max_step, "AICTRL_MAX_STEP_PCT", default.max_step, "--max-step")?;
        let budget = default.stale_budget.as_secs_f64();
        let budget = or_variable(self.stale_budget_s, "AICTRL_STALE_BUDGET_SEC", budget)?;
        let stale_budget = seconds(budget, "--stale-budget-s")?;
        Ok(WeightSettings { alpha, dead_band, max_step, stale_budget })
    }

    fn tls(&self) -> Option<TlsFiles> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { cert, key, client_ca: self.tls_client_ca.clone() })
    }

    fn gateway(&self) -> Result<Option<GatewaySource>> {
        let Some((uri, pool)) = self.gateway.as_ref().zip(self.gateway_pool.clone()) else {
            return Ok(None);
        };
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("--gateway: {uri} is not http://host:port or https://host:port"),
        };
        let authority = uri.authority().cloned().context("--gateway: it has no host")?;
        let origin = Origin::at(authority, https).context("--gateway")?;
        let token = self.gateway_token_file.as_deref().map(token).transpose()?;
        Ok(Some(GatewaySource { origin, pool, token }))
    }
}

fn listen(flag: Option<SocketAddr>, name: &str, port: u16) -> Result<SocketAddr> {
    match (flag, variable(name)?) {
        (Some(flag), _) => Ok(flag),
        (None, Some(text)) => address(&text).map_err(|why| anyhow!("{name}: {why}")),
        (None, None) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
    }
}

/// Whether only machines of one's own can reach it.
fn is_private(address: SocketAddr) -> bool {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        std::net::IpAddr::V6(ip) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
    }
}

fn token(path: &Path) -> Result<String> {
    let name = path.display();
    let bytes = read_small_file(path, MOST_TOKEN_FILE).map_err(|why| anyhow!("{name}: {why}"))?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("{name}: is not UTF-8"))?;
    let token = text.trim();
    if !is_token(token) {
        let (least, most) = (BYTES.start(), BYTES.end());
        bail!("{name}: a token has {least} to {most} characters, ASCII and without blanks");
    }
    Ok(token.to_owned())
}

/// A word that no other process has had.
fn boot_id() -> Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).context("the operating system gives no random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
