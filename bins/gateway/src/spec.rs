//! From the configuration to what the libraries are built from.

use std::sync::Arc;

use anyhow::{Context, Result};
use http::HeaderValue;
use kvasir_config::{
    Config, EndpointConfig, EndpointState, PoolConfig, RankAddressing, TokenParity,
};
use kvasir_fleet::{
    AdminState, DecisionLog, DecisionLogSpec, EndpointSpec, EventSpec, FleetSpec, ParityMode,
    PoolSpec, RankAddressingKind, TokenSpec,
};
use kvasir_inventory::Limits;
use kvasir_proxy::{
    ClientKeys, DEFAULT_HEAD_BYTES, ForwardedHeaders, ListenSettings, Settings, TlsFiles,
};

/// The largest head where clients may give token ids in headers: half a million of them.
const IDS_HEAD_BYTES: usize = 4 << 20;

/// The decision log, if there is to be one.
pub(crate) fn decision_log(config: &Config) -> Result<Option<Arc<DecisionLog>>> {
    let Some(log) = &config.decision_log else { return Ok(None) };
    let (directory, max_bytes, files) = (log.directory.clone(), log.max_bytes, log.files);
    let opened = DecisionLog::open(DecisionLogSpec { directory, max_bytes, files });
    Ok(Some(Arc::new(opened.context("decision_log.directory")?)))
}

/// The fleet's part.
pub(crate) fn fleet_spec(
    config: &Config,
    decision_log: Option<Arc<DecisionLog>>,
) -> Result<FleetSpec> {
    let pool = |pool| pool_spec(pool, config.max_prompt_bytes);
    let pools: Result<Vec<PoolSpec>> = config.pools.iter().map(pool).collect();
    Ok(FleetSpec {
        pools: pools?,
        scrape_interval: config.scrape_interval(),
        connect_timeout: config.connect_timeout(),
        seed: u64::from_le_bytes(random()?),
        decision_log,
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
pub(crate) fn settings(config: &Config, client_keys: Option<Arc<ClientKeys>>) -> Settings {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Settings {
        max_body_bytes: config.max_body_bytes,
        decision_headers: config.decision_headers,
        forward_paths: config.forward_paths.clone(),
        connect_timeout: config.connect_timeout(),
        tokenizer_threads: cores,
        forwarded_headers: match config.listener.forwarded_headers {
            kvasir_config::ForwardedHeaders::Append => ForwardedHeaders::Append,
            kvasir_config::ForwardedHeaders::Replace => ForwardedHeaders::Replace,
            kvasir_config::ForwardedHeaders::Off => ForwardedHeaders::Off,
        },
        client_keys,
    }
}

/// The listener's part.
pub(crate) fn listen_settings(config: &Config) -> ListenSettings {
    let takes_ids = config.pools.iter().any(|pool| pool.trust_token_headers);
    let listener = &config.listener;
    ListenSettings {
        address: config.listen,
        reuse_port: listener.reuse_port,
        http2: listener.http2,
        max_connections: listener.max_connections,
        max_concurrent_streams: listener.max_concurrent_streams,
        idle_timeout: listener.idle_timeout(),
        write_stall: listener.write_stall(),
        max_head_bytes: if takes_ids { IDS_HEAD_BYTES } else { DEFAULT_HEAD_BYTES },
        tls: listener.tls.as_ref().map(|tls| TlsFiles {
            cert: tls.cert_file.clone(),
            key: tls.key_file.clone(),
            client_ca: tls.client_ca_file.clone(),
        }),
    }
}

/// Bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("the operating system gives no random bytes")?;
    Ok(bytes)
}

fn pool_spec(pool: &PoolConfig, max_prompt_bytes: usize) -> Result<PoolSpec> {
    let key = pool.resolve_api_key().map_err(|e| anyhow::anyhow!("pool `{}`: {e}", pool.model))?;
    let authorization = key
        .map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .with_context(|| {
                    format!("pool `{}`: the API key is no header value", pool.model)
                })?;
            value.set_sensitive(true);
            Ok::<_, anyhow::Error>(value)
        })
        .transpose()?;
    let endpoints: Result<Vec<EndpointSpec>> =
        pool.endpoints
            .iter()
            .map(|endpoint| {
                let spec = endpoint_spec(endpoint);
                spec.events.iter().try_for_each(kvasir_fleet::EventSpec::check).with_context(
                    || format!("pool `{}`: events of {}", pool.model, endpoint.url),
                )?;
                Ok(spec)
            })
            .collect();
    Ok(PoolSpec {
        model: pool.model.clone(),
        selection: pool.selection(),
        tokenizer_dir: pool.tokenizer_dir.clone(),
        authorization,
        tokens: TokenSpec {
            max_prompt_bytes,
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
        endpoints: endpoints?,
    })
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

fn endpoint_spec(endpoint: &EndpointConfig) -> EndpointSpec {
    let poll_events = endpoint.polls();
    let EndpointConfig { url, events, replay, topic, bind, ranks, rank, weight, state } = endpoint;
    EndpointSpec {
        authority: url.authority().clone(),
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
    }
}
