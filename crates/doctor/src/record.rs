//! Recordings of a live engine for bug reports, in the format [`crate::Capture`] reads.
//!
//! What is written is what was heard: every event message in hexadecimal, connections, replays, and
//! the requests that were asked for, each with its answer. No conclusion is drawn while recording.
//! Headers are never written, and where an engine repeats the value of one, it is blotted out.
//! Nothing is asked but HTTP pages that change nothing and the replay socket: no queue that another
//! consumer drains (TensorRT-LLM's events).

mod decoded;
mod engine;
mod error;
mod prompts;
mod session;
mod writer;

use std::future::Future;
use std::io::Write;
use std::pin::pin;
use std::time::Duration;

use http::HeaderMap;
use kvasir_fleet::Origin;

pub use self::error::{PromptError, RecordError};
pub use self::prompts::{Prompt, probe_prompts, read_prompts};
use self::session::Session;
use self::writer::LineWriter;

/// What to record.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Host and port of the engine's HTTP server.
    pub origin: Origin,
    /// Headers sent with every question, such as `authorization`; never written.
    pub headers: HeaderMap,
    /// The event publisher's address; `None`: the engine is asked (`GET /kv_event_sources`).
    pub events: Option<String>,
    /// The replay socket's address; `None`: the engine is asked, if it is for `events`.
    pub replay: Option<String>,
    /// The topic of events; empty for all.
    pub topic: String,
    /// Requests to send, one after the other.
    pub prompts: Vec<Prompt>,
    /// How long to go on listening when all of them are answered; `None`: until stopped.
    pub listen: Option<Duration>,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Messages of publishers.
    pub messages: u64,
    /// Batches that came from replay sockets.
    pub replayed: u64,
    /// Requests answered, well or not.
    pub requests: u64,
    /// Connections lost.
    pub disconnects: u64,
    /// Bytes written.
    pub bytes: u64,
    /// The recording grew too large and was ended early.
    pub full: bool,
}

/// Records until everything is done or `stopped` resolves; then asks once more for the last batch
/// and for the metrics. Nothing is written if it is stopped before the engine answered.
///
/// # Errors
/// An engine that cannot be asked, no publisher, or a file that cannot be written.
pub async fn record(
    recording: &Recording,
    out: impl Write,
    stopped: impl Future<Output = ()>,
) -> Result<Recorded, RecordError> {
    let mut stopped = pin!(stopped);
    let mut writer = LineWriter::new(out, &recording.headers);
    let engine = tokio::select! {
        engine = engine::Engine::ask(recording) => engine?,
        () = &mut stopped => return Ok(Recorded::default()),
    };
    writer.write(&engine.meta)?;
    let mut session = Session::start(engine, writer)?;
    tokio::select! {
        done = session.run(recording) => done?,
        () = stopped => {}
    }
    session.finish().await
}
