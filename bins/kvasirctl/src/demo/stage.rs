//! Fresh engines and a gateway over them.

use anyhow::{Context, Result};
use kvasir_balance::PolicyKind;
use kvasir_demo::{StagedModel, Target, engine_config};
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{EngineConfig, Hashing, OpaqueHashing, PseudoRandom};

use super::gateway::Gateway;
use crate::args::DemoArgs;

/// Everything one policy is played on.
#[derive(Debug)]
pub(super) struct Stage {
    gateway: Gateway,
    urls: Vec<String>,
    /// The engines of our own; none where running ones are played against.
    engines: Vec<SimServer>,
    model: String,
}

impl Stage {
    /// Starts engines and gateway and waits until each knows all it has to.
    pub(super) async fn start(
        policy: PolicyKind,
        model: &StagedModel,
        args: &DemoArgs,
    ) -> Result<Self> {
        let mut engines = Vec::new();
        let own = if args.running.is_empty() { u64::from(args.engines) } else { 0 };
        for number in 0..own {
            let engine = SimServer::start(server_config(model, number)).await;
            engines.push(engine.with_context(|| format!("engine {}", number + 1))?);
        }
        let mut urls: Vec<String> = engines.iter().map(SimServer::url).collect();
        for url in &args.running {
            let url = url.trim_end_matches('/').to_owned();
            kvasir_demo::reset_prefix_cache(&url).await.with_context(|| url.clone())?;
            urls.push(url);
        }
        let gateway = Gateway::start(policy, model, &urls, args.seed).await?;
        gateway.ready().await?;
        Ok(Self { gateway, urls, engines, model: model.name().to_owned() })
    }

    /// Where clients ask.
    pub(super) fn target(&self) -> Target {
        Target { url: self.gateway.url().to_owned(), model: self.model.clone() }
    }

    /// The engines' addresses, as the gateway names them.
    pub(super) fn engine_urls(&self) -> Vec<String> {
        self.urls.clone()
    }

    /// Ends the gateway, then the engines.
    pub(super) async fn stop(self) {
        self.gateway.stop().await;
        for engine in self.engines {
            engine.stop().await;
        }
    }
}

fn server_config(model: &StagedModel, number: u64) -> SimServerConfig {
    let engine = EngineConfig {
        // Every engine names its blocks in its own way: nobody has to agree on a seed.
        hashing: Hashing::Opaque(OpaqueHashing { seed: number, per_life: true }),
        ..engine_config()
    };
    SimServerConfig {
        max_model_len: engine.max_model_len as u64,
        engine,
        model: model.name().to_owned(),
        root: Some(model.dir().to_owned()),
        tokens: PseudoRandom { vocabulary: StagedModel::VOCABULARY, stop_one_in: 0 },
        seed: number,
        ..SimServerConfig::default()
    }
}
