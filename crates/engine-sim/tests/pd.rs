//! Prefill/decode disaggregation between servers, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

#[path = "server/common.rs"]
#[allow(dead_code, reason = "shared with the other tests of the server")]
mod common;
#[path = "pd/context.rs"]
mod context;
#[path = "pd/faults.rs"]
mod faults;
#[path = "pd/leases.rs"]
mod leases;
#[path = "pd/load.rs"]
mod load;
#[path = "pd/pair.rs"]
mod pair;
#[path = "pd/recorded.rs"]
mod recorded;
#[path = "pd/rooms.rs"]
mod rooms;
