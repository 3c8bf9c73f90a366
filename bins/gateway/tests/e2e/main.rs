//! The gateway as its users meet it: the real binary as a child process, between clients and fake
//! engines on loopback sockets.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admin;
mod admission;
mod answers;
mod api_keys;
mod breaker;
mod budget;
mod cancellation;
mod configuration;
mod ctl;
mod deadlines;
mod engines;
mod events;
mod failure;
mod forwarding;
mod harness;
mod heads;
mod held;
mod http2;
mod inspect;
mod listener;
mod live;
mod metrics;
mod misses;
mod names;
mod own;
mod pages;
mod parity;
mod pending;
mod policies;
mod reading;
mod reload;
mod reload_engines;
mod reload_soak;
mod requests;
mod retries;
mod routing;
mod shapes;
mod shutdown;
mod signals;
mod sims;
mod slow;
mod smuggling;
mod spans;
mod split;
mod streams;
mod tenants;
mod tls;
mod tokens;
mod unreachable;
mod upstream;
mod url_mode;
mod waited;
