//! KV-cache event streams of inference engines: wire formats, replay, trust.
//!
//! vLLM and SGLang publish what their prefix cache stores and evicts over ZeroMQ. A [`Subscriber`]
//! follows one publisher and yields [`Update`]s; whoever keeps the picture of the cache applies
//! them in order, by three rules:
//!
//! 1. [`Update::Forget`]: drop every block known from this stream, then believe it as far as
//!    `trust` says.
//! 2. [`Update::Batch`]: apply the events of the batch, in order.
//! 3. [`Update::Trust`]: keep the blocks; only the trust changed.
//!
//! A picture kept by these rules never claims more than the publisher announced, whatever was
//! lost, repeated or restarted on the way: that is decided in [`stream`], which has no sockets,
//! and tested there. [`decode`] reads the payloads of vLLM 0.9 and newer and of SGLang; see
//! [`BlockStored::extras`] for what identifies a block besides its tokens.
//!
//! TensorRT-LLM does not publish: its events are fetched, and [`poll`] makes the same updates of
//! them.
//!
//! This crate knows no index, no tokenizer and no HTTP. libzmq runs on threads of its own, never
//! on those of an async runtime.

mod address;
mod event;
mod extras;
mod frames;
pub mod poll;
mod replay;
mod stats;
pub mod stream;
mod subscriber;
mod wire;

pub use self::address::{Address, EndpointError};
pub use self::event::{
    Batch, BlockRemoved, BlockStored, Event, ExtraKey, Medium, PublishedHash, Schema, SpecKind,
};
pub use self::extras::{ExtraItem, Extras, ExtrasError};
pub use self::frames::{Answer, FrameError, LiveMessage, parse_answer, parse_live};
pub use self::stats::StreamStats;
pub use self::stream::{Update, Why};
pub use self::subscriber::{
    Heard, StatsHandle, SubscribeError, Subscriber, SubscriberConfig, Tap, Witness,
};
pub use self::wire::{DecodeError, Problem, decode, decode_published, fuzz_one};
