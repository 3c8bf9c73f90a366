//! A prompt's blocks, kept in the engine for as long as somebody owns them here.

use std::sync::Arc;

use super::{Command, Shared};
use crate::Held;

/// Dropping it gives the blocks back, wherever it was on its way to.
#[derive(Debug)]
pub(in crate::server) struct Hold {
    shared: Arc<Shared>,
    held: Held,
}

impl Hold {
    pub(super) fn new(shared: Arc<Shared>, held: Held) -> Self {
        Self { shared, held }
    }

    /// Tokens of the prompt.
    pub(in crate::server) fn tokens(&self) -> usize {
        self.held.tokens
    }

    /// The blocks' numbers, in prompt order.
    pub(in crate::server) fn blocks(&self) -> &[u32] {
        &self.held.blocks
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.push(&mut self.shared.inbox.lock(), Command::Release(self.held.id));
    }
}
