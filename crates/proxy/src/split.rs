//! A request that two engines serve: one computes the prompt, the other one generates from its blocks.

mod eligible;
mod finished;
mod nixl;
mod rooms;
mod sglang;
mod trtllm;
mod usage;
