//! From the configuration to what the libraries are built from.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use http::{HeaderName, HeaderValue};
use kvasir_config::{
    AdmissionConfig, Config, DisaggregationConfig, EndpointConfig, EndpointRole, EndpointState,
    EngineTlsConfig, ListenerTls, PoolConfig, RankAddressing, TimeoutsConfig, TokenParity,
    TransferProtocol,
};
use kvasir_fleet::{
    AdminState, AdmissionLimits, AdmissionSpec, BreakerSettings, ConnectionLimits, DecisionLog,
    DecisionLogSpec, EndpointLimits, EndpointSpec, EventSpec, FleetSpec, HealthSpec, Most, Origin,
    ParityMode, Part, PoolSpec, Protocol, QueueSpec, RankAddressingKind, RetryLimits, Role,
    SplitSettings, Timeouts, Tls, TlsFiles, TokenSpec, bearer,
};
use kvasir_inventory::Limits;
use kvasir_proxy::{
    DEFAULT_HEAD_BYTES, ForwardedHeaders, ListenError, ListenSettings, Retries, Settings,
    SpanSettings,
};

use crate::address;
use crate::bad_key::{bad_key, cannot_use};
use crate::client_keys::Keys;

/// The largest head where clients may give token ids in headers: half a million of them.
const IDS_HEAD_BYTES: usize = 4 << 20;

/// The decision log, if there is to be one.
pub(crate) fn decision_log(config: &Config) -> Result<Option<Arc<DecisionLog>>> {
    let Some(log) = &config.decision_log else { return Ok(None) };
    let (directory, max_bytes, files) = (log.directory.clone(), log.max_bytes, log.files);
    let opened = DecisionLog::open(DecisionLogSpec { directory, max_bytes, files });
    let opened = opened.map_err(|error| cannot_use("decision_log.directory", error))?;
    Ok(Some(Arc::new(opened)))
}

/// Where spans are sent to, if they are.
pub(crate) fn spans(config: &Config) -> Result<Option<SpanSettings>> {
    let Some(tracing) = &config.tracing else { return Ok(None) };
    let endpoint = &tracing.otlp_endpoint;
    let collector = Origin::at(endpoint.authority().clone(), endpoint.is_https());
    Ok(Some(SpanSettings {
        collector: collector.map_err(|error| bad_key("tracing.otlp_endpoint", error))?,
        path: endpoint.traces_path(),
        sample_ratio: tracing.sample_ratio,
        service_name: tracing.service_name.clone(),
        service_version: env!("CARGO_PKG_VERSION").to_owned(),
    }))
}

/// The fleet's part.
pub(crate) fn fleet_spec(
    config: &Config,
    decision_log: Option<Arc<DecisionLog>>,
) -> Result<FleetSpec> {
    let pools = config.pools.iter().enumerate();
    let pools: Result<Vec<PoolSpec>> =
        pools.map(|(i, pool)| pool_spec(&format!("pools[{i}]"), pool, config)).collect();
    Ok(FleetSpec {
        pools: pools?,
        scrape_interval: config.scrape_interval(),
        connect_timeout: config.timeouts.connect(),
        seed: u64::from_le_bytes(random()?),
        decision_log,
        health: HealthSpec {
            breaker: BreakerSettings {
                failures: config.health.failures,
                open: config.health.open(),
                trials: config.health.half_open_trials,
                ..BreakerSettings::default()
            },
            probe_path: config.health.probe_path.clone(),
            probe_timeout: config.health.probe_timeout(),
        },
    })
}

/// The inventory's part.
pub(crate) fn limits(config: &Config) -> Limits {
    Limits {
        bytes: config.inventory.max_bytes,
        endpoint_bytes: config.inventory.endpoint_bytes(),
        ..Limits::default()
    }
}

/// The data plane's part.
pub(crate) fn settings(config: &Config, keys: Keys) -> Settings {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let takes_ids = config.pools.iter().any(|pool| pool.trust_token_headers);
    Settings {
        max_body_bytes: config.max_body_bytes,
        max_head_bytes: if takes_ids { IDS_HEAD_BYTES } else { DEFAULT_HEAD_BYTES },
        decision_headers: config.decision_headers,
        debug_tokens: keys.debug,
        forward_paths: config.forward_paths.clone(),
        tokenizer_threads: cores,
        forwarded_headers: match config.listener.forwarded_headers {
            kvasir_config::ForwardedHeaders::Append => ForwardedHeaders::Append,
            kvasir_config::ForwardedHeaders::Replace => ForwardedHeaders::Replace,
            kvasir_config::ForwardedHeaders::Off => ForwardedHeaders::Off,
        },
        client_keys: keys.clients,
        retries: Retries {
            attempts: config.retries.attempts,
            budget: RetryLimits {
                percent: config.retries.budget_percent,
                min_per_s: config.retries.budget_min_per_s,
            },
            longest_wait: config.retries.max_retry_after(),
        },
    }
}

/// The listener's part.
pub(crate) fn listen_settings(config: &Config) -> Result<ListenSettings> {
    let listener = &config.listener;
    Ok(ListenSettings {
        address: address::resolve("listen", &config.listen)?,
        reuse_port: listener.reuse_port,
        http2: listener.http2,
        max_connections: listener.max_connections,
        max_concurrent_streams: listener.max_concurrent_streams,
        idle_timeout: listener.idle_timeout(),
        write_stall: listener.write_stall(),
        tls: listener.tls.as_ref().map(tls_files),
    })
}

/// What a listener's error means for the configuration, where it does.
pub(crate) fn unusable_listener(error: ListenError) -> anyhow::Error {
    match error {
        ListenError::Tls(why) => bad_key("listener.tls", why),
        other => other.into(),
    }
}

/// The files of a port's TLS.
pub(crate) fn tls_files(tls: &ListenerTls) -> kvasir_proxy::TlsFiles {
    kvasir_proxy::TlsFiles {
        cert: tls.cert_file.clone(),
        key: tls.key_file.clone(),
        client_ca: tls.client_ca_file.clone(),
    }
}

/// Whether it is a directory; the error names it.
pub(crate) fn check_directory(path: &Path) -> Result<()> {
    let found = path.metadata().with_context(|| path.display().to_string())?;
    if !found.is_dir() {
        bail!("{}: not a directory", path.display());
    }
    Ok(())
}

/// Bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("the operating system gives no random bytes")?;
    Ok(bytes)
}

/// A random number from 0 to 1; the middle where the operating system has none.
pub(crate) fn chance() -> f64 {
    random().map_or(0.5, |bytes| f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}

/// `at` is the pool's place in the configuration, for errors.
fn pool_spec(at: &str, pool: &PoolConfig, config: &Config) -> Result<PoolSpec> {
    let authorization = authorization(at, pool)?;
    if let Some(dir) = &pool.tokenizer_dir {
        let wrong = |error| bad_key(format!("{at}.tokenizer_dir"), format!("{error:#}"));
        check_directory(dir).map_err(wrong)?;
    }
    let tls = tls(at, pool)?;
    let endpoints = pool.endpoints.iter().enumerate().map(|(i, endpoint)| {
        let spec = endpoint_spec(endpoint, origin(pool, endpoint, tls.as_ref()));
        check_events(&format!("{at}.endpoints[{i}]"), &spec)?;
        Ok(spec)
    });
    let endpoints: Result<Vec<EndpointSpec>> = endpoints.collect();
    Ok(PoolSpec {
        model: pool.model.clone(),
        aliases: pool.aliases.clone(),
        decision_headers: pool.decision_headers,
        selection: pool.selection(),
        tokenizer_dir: pool.tokenizer_dir.clone(),
        authorization,
        tokens: TokenSpec {
            max_prompt_bytes: config.max_prompt_bytes,
            trust_headers: pool.trust_token_headers,
            parity: match pool.token_parity {
                TokenParity::Off => ParityMode::Off,
                TokenParity::Startup => ParityMode::Startup,
                TokenParity::Sample => ParityMode::Sample,
            },
        },
        rank_addressing: match pool.rank_addressing {
            RankAddressing::None => RankAddressingKind::None,
            RankAddressing::Header => RankAddressingKind::Header,
            RankAddressing::Url => RankAddressingKind::Url,
        },
        identity: block_identity(&pool.identity),
        timeouts: timeouts(&config.timeouts.with(&pool.timeouts)),
        admission: admission(at, &pool.admission)?,
        split: pool.splits().map(|split| split_settings(&split)),
        endpoints: endpoints?,
    })
}

/// What engines are shown.
fn authorization(at: &str, pool: &PoolConfig) -> Result<Option<HeaderValue>> {
    let wrong = |(key, why)| bad_key(format!("{at}.{key}"), why);
    let Some(key) = pool.resolve_api_key().map_err(wrong)? else { return Ok(None) };
    let value = bearer(key.expose()).map_err(|_| {
        // Whichever of the three it was.
        let given = [("_env", pool.api_key_env.is_some()), ("_file", pool.api_key_file.is_some())];
        let end = given.iter().find(|(_, is_given)| *is_given).map_or("", |(end, _)| *end);
        bad_key(format!("{at}.api_key{end}"), "the API key is no header value")
    })?;
    Ok(Some(value))
}

/// Whether addresses of events can be used.
fn check_events(at: &str, endpoint: &EndpointSpec) -> Result<()> {
    let Some(events) = &endpoint.events else { return Ok(()) };
    let publisher = EventSpec { replay: None, ..events.clone() };
    publisher.check().map_err(|error| bad_key(format!("{at}.events"), error))?;
    events.check().map_err(|error| bad_key(format!("{at}.replay"), error))
}

#[expect(clippy::cast_precision_loss, reason = "bounded far below 2^52")]
fn split_settings(config: &DisaggregationConfig) -> SplitSettings {
    SplitSettings {
        protocol: match config.protocol {
            TransferProtocol::Auto => Protocol::Auto,
            TransferProtocol::Nixl => Protocol::Nixl,
            TransferProtocol::Sglang => Protocol::Sglang,
            TransferProtocol::Trtllm => Protocol::Trtllm,
        },
        select: config.select,
        prefill_timeout: config.prefill_timeout(),
        decode_timeout: config.decode_timeout(),
        transfer_rate: config.transfer_tokens_per_s as f64,
        transfer_time: config.transfer(),
        bootstrap_port: config.bootstrap_port,
        lease: config.lease(),
    }
}

/// Nothing where a pool takes everything at once.
fn admission(at: &str, config: &AdmissionConfig) -> Result<Option<AdmissionSpec>> {
    if !config.is_on() {
        return Ok(None);
    }
    let header = |key: &str, name: &Option<String>| -> Result<Option<HeaderName>> {
        let name = name.as_ref().map(|name| HeaderName::from_bytes(name.as_bytes())).transpose();
        name.map_err(|error| bad_key(format!("{at}.admission.{key}"), error))
    };
    let each = config.endpoint;
    Ok(Some(AdmissionSpec {
        limits: AdmissionLimits {
            pool: Most { requests: config.max_requests, prefill_tokens: config.max_prefill_tokens },
            endpoint: EndpointLimits {
                most: Most { requests: each.max_requests, prefill_tokens: each.max_prefill_tokens },
                kv_usage: each.max_kv_usage,
            },
        },
        queue: QueueSpec { places: config.queue.places, max_wait: config.queue.max_wait() },
        hold: config.hold(),
        tenant_header: header("tenant_header", &config.tenant_header)?,
        priority_header: header("priority_header", &config.priority_header)?,
        timeout_header: header("timeout_header", &config.timeout_header)?,
    }))
}

fn timeouts(config: &TimeoutsConfig) -> Timeouts {
    Timeouts {
        connect: config.connect(),
        first_data: config.first_data(),
        idle: config.idle(),
        request: config.request(),
    }
}

fn block_identity(identity: &kvasir_config::BlockIdentity) -> kvasir_fleet::BlockIdentity {
    use kvasir_config::{BlockIdentity, EngineHashing, HashAlgorithm};
    match identity {
        BlockIdentity::Tokens => kvasir_fleet::BlockIdentity::Tokens,
        BlockIdentity::Engine(EngineHashing { algorithm, seed, version }) => {
            kvasir_fleet::BlockIdentity::Engine(kvasir_fleet::EngineHashing {
                algorithm: match algorithm {
                    HashAlgorithm::Vllm(algorithm) => kvasir_fleet::HashAlgorithm::Vllm(*algorithm),
                    HashAlgorithm::Sglang => kvasir_fleet::HashAlgorithm::Sglang,
                },
                seed: seed.clone(),
                version: *version,
            })
        }
    }
}

/// TLS to a pool's engines, where any is spoken to in it.
fn tls(at: &str, pool: &PoolConfig) -> Result<Option<Tls>> {
    if !pool.endpoints.iter().any(|endpoint| endpoint.url.is_https()) {
        return Ok(None);
    }
    let files = pool.engine_tls.as_ref().map_or_else(TlsFiles::default, engine_tls_files);
    let loaded = Tls::load(&files).map_err(|error| cannot_use(format!("{at}.engine_tls"), error));
    Ok(Some(loaded?))
}

pub(crate) fn engine_tls_files(config: &EngineTlsConfig) -> TlsFiles {
    let EngineTlsConfig { ca_file, cert_file, key_file, server_name, insecure_skip_verify } =
        config.clone();
    TlsFiles { ca_file, cert_file, key_file, server_name, insecure_skip_verify }
}

fn origin(pool: &PoolConfig, endpoint: &EndpointConfig, tls: Option<&Tls>) -> Origin {
    let limits =
        ConnectionLimits { idle: pool.max_idle_connections, connections: pool.max_connections };
    let tls = tls.filter(|_| endpoint.url.is_https()).cloned();
    Origin::new(endpoint.url.authority().clone(), tls, pool.http2, limits)
}

fn endpoint_spec(endpoint: &EndpointConfig, origin: Origin) -> EndpointSpec {
    let poll_events = endpoint.polls();
    let EndpointConfig {
        url: _,
        events,
        replay,
        topic,
        bind,
        ranks,
        rank,
        weight,
        state,
        // Of the control plane alone.
        group: _,
        role,
        bootstrap_port,
        bootstrap_host,
    } = endpoint;
    EndpointSpec {
        origin,
        events: events.clone().filter(|_| !poll_events).map(|publisher| EventSpec {
            publisher,
            replay: replay.clone(),
            topic: topic.clone().unwrap_or_default(),
            bind: *bind,
        }),
        poll_events,
        ranks: *ranks,
        rank: *rank,
        weight: *weight,
        state: match state {
            EndpointState::Active => AdminState::Active,
            EndpointState::Drain => AdminState::Drain,
            EndpointState::Disabled => AdminState::Disabled,
        },
        part: Part {
            role: match role {
                EndpointRole::Unified => Role::Unified,
                EndpointRole::Prefill => Role::Prefill,
                EndpointRole::Decode => Role::Decode,
            },
            bootstrap_host: bootstrap_host.clone(),
            bootstrap_port: *bootstrap_port,
        },
    }
}
