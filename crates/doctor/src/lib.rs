//! Checks a live engine, leg by leg, against what the gateway needs of it and believes of it.
//!
//! KV-aware routing fails silently: a seed, an algorithm, a template or a socket that is not what
//! the router takes it for costs every hit and shows nowhere. [`check`] asks an engine everything
//! the gateway relies on and gives a [`Report`]: one [`Leg`] for each thing that can be wrong, with
//! a verdict, what was found, and what to do.
//!
//! It reads only, unless [`Target::probe`] gives leave to send prompts; it never touches a queue
//! that another consumer drains (TensorRT-LLM's events). [`compare`] looks across the engines of
//! one pool for what must be alike.
//!
//! This crate decides nothing about requests and keeps nothing: it knows no configuration file, no
//! command line and no policy. What it measures of an engine it measures through the very code the
//! gateway uses: `fleet`'s client and card, `kv-events`' subscriber, `prompt`'s renderer, `kv-hash`'
//! contracts.

mod capture;
mod check;
mod compare;
mod contract;
mod facts;
mod inspect;
mod metrics;
mod prediction;
mod probe;
mod record;
mod report;
mod residency;
mod shown;
mod stream;
mod target;
mod tokens;

pub use self::capture::{Capture, CaptureError};
pub use self::check::check;
pub use self::compare::{Examination, compare};
pub use self::record::{
    Prompt, PromptError, RecordError, Recorded, Recording, probe_prompts, read_prompts, record,
};
pub use self::report::{Leg, LegName, Report, Verdict};
pub use self::residency::{
    BlocksByTier, LeftOut, Predicted, ReplayFound, Residency, ResidencyError, SourceState, Step,
    TrustChange, residency, residency_by,
};
pub use self::target::{Expectations, Target};
