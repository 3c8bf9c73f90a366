//! The command line, and what stands on top of the configuration file: the environment, then flags.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use kvasir_balance::PolicyKind;
use kvasir_config::{CONFIG_VARIABLE, Config, EngineUrl, ListenAddress, PoolConfig, Taken};

use crate::bad_key::Said;
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
    /// Says whether `serve` could start with a configuration. Status 0 if so, 78 if not.
    Check(FileArgs),
    /// What a configuration is, and what it may be.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// The configuration in effect as YAML: file, environment and flags, secrets as `***`.
    Print(FileArgs),
    /// The JSON schema of the configuration file.
    Schema,
}

/// Either a configuration file, or engine URLs: then the engines are asked for their models, block
/// sizes and event streams.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Base URLs of the engines: scheme `http` or `https`, host and port.
    #[arg(value_name = "URL", conflicts_with = "config")]
    pub(crate) urls: Vec<EngineUrl>,
    #[command(flatten)]
    from: FileArgs,
}

/// The configuration file, and what wins over it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// The configuration file (YAML). Default: what `KVASIR_CONFIG` says.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on; wins over the file.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<ListenAddress>,
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

/// A configuration with everything on top.
pub(crate) struct Told {
    pub(crate) config: Config,
    /// Who said it.
    pub(crate) said: Said,
    /// What the environment says.
    pub(crate) taken: Vec<Taken>,
}

impl ServeArgs {
    /// Takes the file that the environment names where the command line names neither a file nor
    /// engines. Whether anything is named at all.
    pub(crate) fn find_file(&mut self) -> bool {
        !self.urls.is_empty() || self.from.find_file()
    }

    /// The configuration with environment and flags on top. Without a file its one pool has no
    /// endpoints and an empty name: it says how the pools found at the URLs are to be set up.
    pub(crate) fn config(&self) -> Result<Told> {
        self.from.config()
    }

    /// The configuration file, where there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.from.file()
    }
}

impl FileArgs {
    /// Takes the file that the environment names where the command line names none. Whether there is
    /// one.
    pub(crate) fn find_file(&mut self) -> bool {
        let named = || std::env::var_os(CONFIG_VARIABLE).filter(|name| !name.is_empty());
        self.config = self.config.take().or_else(|| named().map(PathBuf::from));
        self.config.is_some()
    }

    /// The configuration file, where there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// As [`ServeArgs::config`].
    pub(crate) fn config(&self) -> Result<Told> {
        let (mut config, text) = match &self.config {
            Some(path) => Config::load_with_text(path)?,
            None => {
                let pools = vec![PoolConfig::named(String::new())];
                (Config { pools, ..Config::default() }, String::new())
            }
        };
        let taken = config.take_environment()?;
        self.take_flags(&mut config)?;
        if let Some(path) = &self.config {
            config.verify(&format!("{} and flags", path.display()))?;
        }
        let said = Said::by(self.config.clone(), text, self.flags(), &taken);
        Ok(Told { config, said, taken })
    }

    /// The keys that flags set, with the flags.
    fn flags(&self) -> Vec<(&'static str, &'static str)> {
        let flags = [
            ("listen", "--listen", self.listen.is_some()),
            ("pools[].tokenizer_dir", "--tokenizer-dir", self.tokenizer_dir.is_some()),
            ("pools[].policy", "--policy", self.policy.is_some()),
            ("decision_log.directory", "--decision-log", self.decision_log.is_some()),
        ];
        flags.into_iter().filter(|(.., given)| *given).map(|(key, flag, _)| (key, flag)).collect()
    }

    fn take_flags(&self, config: &mut Config) -> Result<()> {
        if let Some(listen) = self.listen.clone() {
            config.listen = listen;
        }
        config.decision_headers |= self.decision_headers;
        if let Some(directory) = self.decision_log.clone() {
            config.log_decisions_in(directory);
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
        Ok(())
    }
}
