//! The command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use kvasir_balance::PolicyKind;
use kvasir_config::{Config, DecisionLogConfig, EngineUrl, PoolConfig};

use crate::spec;

/// KV-aware LLM inference gateway.
#[derive(Debug, Parser)]
#[command(name = "kvasir-gateway", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Routes OpenAI-style requests to the engine replicas that will answer soonest.
    Serve(ServeArgs),
}

/// Either a configuration file, or engine URLs: then the engines are asked for their models, block
/// sizes and event streams.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Base URLs of the engines: scheme `http` or `https`, host and port.
    #[arg(value_name = "URL", conflicts_with = "config", required_unless_present = "config")]
    pub(crate) urls: Vec<EngineUrl>,
    /// The configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on; wins over the file.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<SocketAddr>,
    /// Directory of staged tokenizers (MODEL with `/` as `__`); wins over the file.
    #[arg(long, value_name = "DIR")]
    tokenizer_dir: Option<PathBuf>,
    /// Routing policy of every pool; wins over the file.
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyKind>,
    /// Send x-kvasir-endpoint and x-kvasir-reason with every answer.
    #[arg(long)]
    decision_headers: bool,
    /// Log every decision in this directory, for `kvasirctl replay`; wins over the file.
    #[arg(long, value_name = "DIR")]
    decision_log: Option<PathBuf>,
}

impl ServeArgs {
    /// The configuration with the flags on top. Without a file its one pool has no endpoints and
    /// an empty name: it says how the pools found at the URLs are to be set up. The file's text, too.
    pub(crate) fn config(&self) -> Result<(Config, String)> {
        let (mut config, text) = match &self.config {
            Some(path) => Config::load_with_text(path)?,
            None => {
                let pools = vec![PoolConfig::named(String::new())];
                (Config { pools, ..Config::default() }, String::new())
            }
        };
        if let Some(listen) = self.listen {
            config.listen = listen;
        }
        config.decision_headers |= self.decision_headers;
        if let Some(directory) = self.decision_log.clone() {
            let limits = config.decision_log.take();
            config.decision_log = Some(match limits {
                Some(limits) => DecisionLogConfig { directory, ..limits },
                None => DecisionLogConfig::at(directory),
            });
        }
        if let Some(dir) = &self.tokenizer_dir {
            spec::check_directory(dir).context("--tokenizer-dir")?;
        }
        for pool in &mut config.pools {
            if let Some(dir) = &self.tokenizer_dir {
                pool.tokenizer_dir = Some(dir.clone());
            }
            if let Some(policy) = self.policy {
                pool.policy = policy.into();
            }
        }
        Ok((config, text))
    }

    /// The configuration file, where there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }
}
