//! The contract, the controller and the gateway's side, each through what it shows.

mod advisor;
mod follower;
mod golden;
mod registry;
mod sockets;
