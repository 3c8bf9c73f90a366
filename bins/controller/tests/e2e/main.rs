//! The controller, a gateway and simulated engines: the two real binaries as child processes.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod advice;
mod arguments;
mod harness;
