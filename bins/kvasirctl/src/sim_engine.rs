//! `kvasirctl sim-engine`: one simulated engine until it is told to stop.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use kvasir_demo::StagedModel;
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{EngineConfig, HashForm, Hashing};

use crate::args::SimEngineArgs;
use crate::output::write;
use crate::{Ended, stop};

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn run(args: SimEngineArgs) -> Result<Ended> {
    let stopped = stop::requested()?;
    let mut config = server_config(&args)?;
    // Held until the end: the engine reports its directory to whoever asks.
    let built_in = match &args.tokenizer {
        Some(_) => None,
        None => Some(StagedModel::create(&args.model).context("the built-in model")?),
    };
    if let Some(model) = &built_in {
        config.root = Some(model.dir().to_owned());
        config.tokens.vocabulary = StagedModel::VOCABULARY;
    }
    let server = SimServer::start(config).await?;
    let or_none = |endpoint: Option<String>| endpoint.unwrap_or_else(|| "none".to_owned());
    let events = or_none(server.events_endpoint());
    let replay = or_none(server.replay_endpoint());
    write(&format!("{} events={events} replay={replay}\n", server.url()))?;
    stopped.await;
    server.stop().await;
    Ok(Ended::Done)
}

fn server_config(args: &SimEngineArgs) -> Result<SimServerConfig> {
    let root = match &args.tokenizer {
        Some(dir) => {
            let dir = dir.canonicalize();
            let dir = dir.with_context(|| format!("--tokenizer {}", shown(&args.tokenizer)))?;
            if !dir.is_dir() {
                bail!("--tokenizer {}: not a directory", dir.display());
            }
            Some(dir)
        }
        None => None,
    };
    let hashing = Hashing::of_engine(args.engine_version.release, args.algo, args.seed.as_deref())
        .context("--algo")?;
    let engine = engine_config(args, hashing)?;
    Ok(SimServerConfig {
        max_model_len: engine.max_model_len as u64,
        engine,
        model: args.model.clone(),
        root,
        adapters: args.lora.clone(),
        listen: SocketAddr::new(args.host, args.port),
        events: args.events.clone(),
        replay: args.replay.clone(),
        topic: args.topic.clone(),
        ranks: args.ranks,
        version: args.engine_version.text.clone(),
        hash_form: if args.int_hashes {
            HashForm::Int
        } else {
            HashForm::Bytes(args.algo.digest_len())
        },
        event_tokens: !args.no_event_tokens,
        hash_algorithm: args.algo.to_string(),
        report_cached_tokens: !args.no_report_cached_tokens,
        kind: args.pd.kind,
        pd: args.pd.config(),
        faults: args.faults,
        ..SimServerConfig::default()
    })
}

fn engine_config(args: &SimEngineArgs, hashing: Hashing) -> Result<EngineConfig> {
    let default = EngineConfig::default();
    let mut engine = EngineConfig {
        version: args.engine_version.release,
        block_size: args.block_size.unwrap_or(default.block_size),
        num_blocks: args.blocks.unwrap_or(default.num_blocks),
        hashing,
        cost: default.cost.faster(args.speed),
        ..default
    };
    // A small cache shortens the context, as the size of a GPU does.
    let capacity = engine.usable_blocks().saturating_mul(engine.block_size);
    engine.max_model_len = engine.max_model_len.min(capacity);
    engine.validate().context("--block-size, --blocks")?;
    Ok(engine)
}

fn shown(path: &Option<std::path::PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| path.display().to_string())
}
