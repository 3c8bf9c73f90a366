//! The contract, the controller and the gateway's side, each through what it shows.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used)]

mod advisor;
mod follower;
mod golden;
mod registry;
mod sockets;
