//! Connections to engines that fail, close, move and speak TLS, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

mod engine;
mod frames;
mod h2;
mod handover;
mod kept;
mod limits;
mod names;
mod phases;
mod places;
mod resets;
mod tls;
