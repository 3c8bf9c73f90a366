//! Why there is no recording.

use kvasir_fleet::ProbeError;
use kvasir_kv_events::{EndpointError, SubscribeError};

/// Why an engine cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The engine cannot be asked what it is.
    #[error("{path}: {error}")]
    Engine {
        /// The path asked for.
        path: &'static str,
        /// What went wrong.
        error: ProbeError,
    },
    /// Nobody says where events are published.
    #[error(
        "the engine does not say where it publishes events (GET /kv_event_sources of vLLM 0.32 and \
         newer): give the publisher's address with --events"
    )]
    NoPublisher,
    /// An address that cannot be used.
    #[error("{what} {address}: {error}")]
    Address {
        /// Which of them.
        what: &'static str,
        /// What was given or told.
        address: String,
        /// What is wrong with it.
        error: EndpointError,
    },
    /// No thread to be had.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// The publisher does not answer.
    #[error("no publisher answers at {0}")]
    NotConnected(String),
    /// A listening thread died.
    #[error("listening ended by itself")]
    Deaf,
    /// The recording cannot be written.
    #[error("cannot write the recording: {0}")]
    Write(std::io::Error),
}

impl From<std::io::Error> for RecordError {
    fn from(error: std::io::Error) -> Self {
        Self::Write(error)
    }
}

/// Why a file of prompts cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{line}: {why}")]
pub struct PromptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}
