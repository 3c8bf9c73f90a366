//! Whole checks of engines behind real sockets: simulated ones that hash, publish and count as
//! vLLM does, and fakes that go wrong.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop, and shows reports")]

mod common;
mod contracts;
mod expectations;
mod predictions;
mod sockets;
