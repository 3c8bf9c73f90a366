//! The workload: many users of several tenants in conversations of several turns.
//!
//! Every tenant has one long system prompt, shared by its users. A user asks, reads the answer,
//! thinks, asks again with the whole conversation so far, and after a few turns starts another
//! one. Users are closed loops: a slow answer delays the next question, so the load never runs
//! away from the engines.

use std::time::Duration;

use crate::rng::Rng;
use crate::text;

/// How large a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Distinct system prompts.
    pub tenants: usize,
    /// Users of each tenant.
    pub users_per_tenant: usize,
    /// Words of a system prompt; a tenant's is up to a fifth longer.
    pub system_words: usize,
    /// Turns of a conversation, least and most.
    pub turns: (u64, u64),
    /// Sentences of a question, least and most.
    pub sentences: (u64, u64),
    /// Tokens asked for in an answer.
    pub answer_tokens: u32,
    /// Milliseconds between an answer and the next question, least and most.
    pub think_ms: (u64, u64),
    /// The users arrive one by one over so many milliseconds.
    pub arrival_ms: u64,
}

impl Shape {
    /// What `engines` engines of [`engine_config`](crate::engine_config) serve without queues
    /// if their caches are used well.
    #[must_use]
    pub fn for_engines(engines: usize) -> Self {
        Self {
            tenants: 2 * engines.max(1),
            users_per_tenant: 4,
            system_words: 1_200,
            turns: (3, 6),
            sentences: (1, 3),
            answer_tokens: 20,
            think_ms: (1_500, 3_500),
            arrival_ms: 3_000,
        }
    }

    /// All users.
    #[must_use]
    pub fn users(&self) -> usize {
        self.tenants * self.users_per_tenant
    }
}

/// What users will say, as a function of the seed alone.
#[derive(Clone, Debug)]
pub struct Workload {
    shape: Shape,
    seed: u64,
    systems: Vec<String>,
}

impl Workload {
    /// The workload of a seed. Equal shapes and seeds give equal workloads, on every machine.
    #[must_use]
    pub fn new(shape: Shape, seed: u64) -> Self {
        let systems = (0..shape.tenants)
            .map(|tenant| {
                let mut rng = Rng::new(seed, tenant as u64);
                let least = shape.system_words as u64;
                let words = rng.between(least, least + least / 5);
                text::system_prompt(&mut rng, tenant, usize::try_from(words).unwrap_or(usize::MAX))
            })
            .collect();
        Self { shape, seed, systems }
    }

    /// Its size.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The tenants' system prompts.
    #[must_use]
    pub fn systems(&self) -> &[String] {
        &self.systems
    }

    /// The users, each at the first question.
    pub(crate) fn users(&self) -> impl Iterator<Item = User> + '_ {
        (0..self.shape.users()).map(|number| User {
            // Neighbours are of different tenants, so that those of one arrive apart.
            tenant: number % self.shape.tenants,
            shape: self.shape,
            rng: Rng::new(self.seed, (1 << 32) | number as u64),
            left: 0,
            arrives: Duration::from_millis(
                self.shape.arrival_ms * number as u64 / self.shape.users() as u64,
            ),
        })
    }
}

/// One user: yields questions for ever.
#[derive(Clone, Debug)]
pub(crate) struct User {
    tenant: usize,
    shape: Shape,
    rng: Rng,
    /// Turns left of this conversation.
    left: u64,
    arrives: Duration,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Whether it opens a conversation; else it goes on with the one before.
    pub(crate) opens: bool,
    /// What the user says.
    pub(crate) question: String,
    /// How long the user waits before asking.
    pub(crate) think: Duration,
}

impl User {
    /// Whose system prompt opens the conversations, as an index of [`Workload::systems`].
    #[must_use]
    pub(crate) fn tenant(&self) -> usize {
        self.tenant
    }

    /// When the user comes.
    #[must_use]
    pub(crate) fn arrives(&self) -> Duration {
        self.arrives
    }

    /// Gives the conversation up: the next question opens another one.
    pub(crate) fn start_over(&mut self) {
        self.left = 0;
    }

    /// The next question.
    pub(crate) fn next_turn(&mut self) -> Turn {
        let opens = self.left == 0;
        if opens {
            self.left = self.rng.between(self.shape.turns.0.max(1), self.shape.turns.1);
        }
        self.left = self.left.saturating_sub(1);
        let sentences = self.rng.between(self.shape.sentences.0, self.shape.sentences.1);
        let question = text::question(&mut self.rng, sentences);
        let think = self.rng.between(self.shape.think_ms.0, self.shape.think_ms.1);
        Turn { opens, question, think: Duration::from_millis(think) }
    }
}

#[cfg(test)]
mod tests;
