//! The texts and chats whose tokens are compared: those the gateway compares when it starts.

pub(super) use kvasir_fleet::{ProbeCase as Case, probe_chats as chats, probe_texts as texts};
