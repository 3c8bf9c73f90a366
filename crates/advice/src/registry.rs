//! The controller's registry: which engines a service has, and what is expected of each.
//!
//! Two forms are read. The *strict* one has `version: 1` and hosts keyed by IP address. The *published
//! sample* form has no version and hosts keyed by any name; a host of it without an `address` is looked up
//! by its `ep_idx` at the gateway, where the controller knows one, and otherwise keeps its static prior.

mod check;
mod raw;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_files::read_small_file;

use self::raw::RawRegistry;

/// The largest registry that is read, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// What the controller knows of a fleet before it has asked any engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Registry {
    /// The service's key on the wire: `ip:port:proto`, or whatever the gateway knows it by.
    pub service_key: String,
    /// How often a snapshot is given; its deadline is three times as far.
    pub epoch: Duration,
    /// By `ep_idx`.
    pub hosts: Vec<Host>,
}

/// One engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its key in the registry.
    pub name: String,
    /// `host:port`; `None` where only its index is known.
    pub address: Option<String>,
    /// Its part in disaggregated serving.
    pub role: HostRole,
    /// Its place among the service's endpoints, as the gateway counts them.
    pub ep_idx: u32,
    /// What an operator wants of it.
    pub state: HostState,
    /// Its GPU, for people.
    pub gpu_model: String,
    /// Its memory, for people.
    pub hbm_gb: f64,
    /// Blocks its cache has if it is what was calibrated.
    pub expected_blocks: u64,
    /// Its speed, in any unit that all hosts of its role share.
    pub prior: f64,
    /// What was measured on it.
    pub calibration: Option<Calibration>,
}

/// A part in disaggregated serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostRole {
    /// Whole requests.
    Unified,
    /// Prompts.
    Prefill,
    /// Answers.
    Decode,
}

/// What an operator wants of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostState {
    /// Requests go there.
    #[default]
    Active,
    /// No new conversations.
    Draining,
    /// None.
    Disabled,
}

/// What was measured on an engine, and on what it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Tokens per second.
    pub tokens_per_sec: Option<f64>,
    /// Speed in the unit of the priors.
    pub ratio: Option<f64>,
    /// The fingerprint of the fields.
    pub fingerprint: Option<String>,
    /// What it was measured on.
    pub fields: BTreeMap<String, String>,
}

/// What is wrong with a registry, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// It cannot be read.
    #[error("{}: {why}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A value that is not allowed.
    #[error("{file}:{line}:{column}: {}{message}", key_prefix(.key))]
    Wrong {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
        /// The key, as a path; empty where YAML itself is wrong.
        key: String,
        /// What is wrong.
        message: String,
    },
}

fn key_prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}: ") }
}

impl Registry {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is larger than 1 MiB, or as [`parse`](Self::parse).
    pub fn load(path: &Path) -> Result<Self, RegistryError> {
        let wrong = |why: String| RegistryError::Read { path: path.to_owned(), why };
        let bytes = read_small_file(path, MAX_BYTES).map_err(wrong)?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8".to_owned()))?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Parses a text; `file` is the name used in errors.
    ///
    /// # Errors
    /// The first value that is not allowed, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, RegistryError> {
        let raw: RawRegistry = serde_saphyr::from_str(text).map_err(|error| {
            let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
            let shown = error.without_snippet().to_string();
            let message = shown.split(" at line ").next().unwrap_or_default().to_owned();
            RegistryError::Wrong {
                file: file.to_owned(),
                line,
                column,
                key: String::new(),
                message,
            }
        })?;
        check::checked(raw).map_err(|fault| {
            let check::Fault { line, column, key, message } = fault;
            RegistryError::Wrong { file: file.to_owned(), line, column, key, message }
        })
    }
}

impl HostRole {
    /// The word in the registry and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}
