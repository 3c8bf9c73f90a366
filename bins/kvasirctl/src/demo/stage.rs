//! Fresh engines and a gateway over them.

use anyhow::{Context, Result};
use kvasir_demo::{StagedModel, Target, engine_config};
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{EngineConfig, Hashing, OpaqueHashing, PseudoRandom};

use super::Part;
use super::gateway::Gateway;
use crate::args::DemoArgs;

/// Everything one policy is played on.
#[derive(Debug)]
pub(super) struct Stage {
    /// One over all engines, or one over each.
    gateways: Vec<Gateway>,
    urls: Vec<String>,
    /// The engines of our own; none where running ones are played against.
    engines: Vec<SimServer>,
    model: String,
}

impl Stage {
    /// Starts engines and gateways and waits until each knows all it has to.
    pub(super) async fn start(part: Part, model: &StagedModel, args: &DemoArgs) -> Result<Self> {
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
        let share = if part.is_apart() { 1 } else { urls.len() };
        let mut gateways = Vec::new();
        for urls in urls.chunks(share.max(1)) {
            let gateway = Gateway::start(part.policy(), model, urls, args.seed).await?;
            gateway.ready().await?;
            gateways.push(gateway);
        }
        Ok(Self { gateways, urls, engines, model: model.name().to_owned() })
    }

    /// Where clients ask.
    pub(super) fn targets(&self) -> Vec<Target> {
        let target =
            |gateway: &Gateway| Target { url: gateway.url().to_owned(), model: self.model.clone() };
        self.gateways.iter().map(target).collect()
    }

    /// The engines' addresses, as the gateway names them.
    pub(super) fn engine_urls(&self) -> Vec<String> {
        self.urls.clone()
    }

    /// Ends the gateways, then the engines.
    pub(super) async fn stop(self) {
        for gateway in self.gateways {
            gateway.stop().await;
        }
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
