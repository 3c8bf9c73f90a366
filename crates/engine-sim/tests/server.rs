//! The server around the engine model, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

#[path = "server/api.rs"]
mod api;
#[path = "server/common.rs"]
mod common;
#[path = "server/events.rs"]
mod events;
#[path = "server/faults.rs"]
mod faults;
#[path = "server/lives.rs"]
mod lives;
#[path = "server/load.rs"]
mod load;
#[path = "server/recorded.rs"]
mod recorded;
