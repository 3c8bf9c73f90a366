//! Bodies against recorded vLLM 0.32: rendered text and token ids must be identical.
//!
//! The models of `tiny` and `shapes` are our own; those of `external` must not be redistributed and
//! are looked for where `KVASIR_TOKENIZERS` says (`cargo xtask check-external`).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop at once")]

mod case;
mod external;
mod shapes;
mod tiny;
