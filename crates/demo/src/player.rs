//! Plays a workload and measures every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::{Answer, Chat, ChatClient, ChatError, Message};
use crate::workload::{User, Workload};

/// Where a workload is played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server's address, such as `http://127.0.0.1:8080`.
    pub url: String,
    /// The model to ask for.
    pub model: String,
}

/// What has been done so far, for whoever watches.
#[derive(Debug, Default)]
pub struct Progress {
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Progress {
    /// Complete answers.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Requests without a complete answer.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What came of a workload.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// The answers, in no particular order.
    pub answers: Vec<Answer>,
    /// How many requests failed.
    pub failed: u64,
    /// Why the first of them did.
    pub first_failure: Option<ChatError>,
}

/// Plays `workload` for `time`; the users of each tenant ask one of `targets`, over which the
/// tenants are dealt out in turn. After that nobody asks any more, and the answers under way are
/// waited for. Dropping the future ends everybody at once.
pub async fn play(
    targets: &[Target],
    workload: &Arc<Workload>,
    time: Duration,
    progress: &Arc<Progress>,
) -> Played {
    let begin = Instant::now();
    let clients: Vec<(ChatClient, &Target)> =
        targets.iter().map(|target| (ChatClient::new(&target.url), target)).collect();
    let mut users = JoinSet::new();
    for user in workload.users() {
        let Some(turn) = user.tenant().checked_rem(clients.len()) else { break };
        let Some((client, target)) = clients.get(turn) else { break };
        let seat = Seat {
            client: client.clone(),
            model: target.model.clone(),
            workload: Arc::clone(workload),
            progress: Arc::clone(progress),
            end: begin + time,
        };
        users.spawn(seat.run(user, begin));
    }
    let mut played = Played::default();
    let mut first: Option<(Instant, ChatError)> = None;
    while let Some(ended) = users.join_next().await {
        let experience = match ended {
            Ok(experience) => experience,
            Err(error) => {
                played.failed += 1;
                first.get_or_insert((begin, ChatError::Http(format!("a user's task: {error}"))));
                continue;
            }
        };
        played.answers.extend(experience.answers);
        played.failed += experience.failed;
        if let Some((at, error)) = experience.first_failure
            && first.as_ref().is_none_or(|(known, _)| at < *known)
        {
            first = Some((at, error));
        }
    }
    played.first_failure = first.map(|(_, error)| error);
    played
}

/// Where one user sits.
struct Seat {
    client: ChatClient,
    model: String,
    workload: Arc<Workload>,
    progress: Arc<Progress>,
    end: Instant,
}

/// What one user saw.
#[derive(Default)]
struct Experience {
    answers: Vec<Answer>,
    failed: u64,
    first_failure: Option<(Instant, ChatError)>,
}

impl Seat {
    async fn run(self, mut user: User, begin: Instant) -> Experience {
        let mut seen = Experience::default();
        let mut messages: Vec<Message> = Vec::new();
        // The first question comes with the user.
        let mut ask_at = begin + user.arrives();
        loop {
            let turn = user.next_turn();
            if !messages.is_empty() || seen.failed > 0 {
                ask_at = Instant::now() + turn.think;
            }
            if ask_at >= self.end {
                return seen;
            }
            sleep_until(ask_at).await;
            if turn.opens {
                let system = self.workload.systems().get(user.tenant()).cloned();
                messages = vec![Message { role: "system", content: system.unwrap_or_default() }];
            }
            messages.push(Message { role: "user", content: turn.question });
            let tokens = self.workload.shape().answer_tokens;
            match self.client.ask(&Chat::new(&self.model, &messages, tokens)).await {
                Ok(answer) => {
                    self.progress.answered.fetch_add(1, Ordering::Relaxed);
                    messages.push(Message { role: "assistant", content: answer.text.clone() });
                    seen.answers.push(answer);
                }
                Err(error) => {
                    self.progress.failed.fetch_add(1, Ordering::Relaxed);
                    seen.failed += 1;
                    seen.first_failure.get_or_insert_with(|| (Instant::now(), error));
                    user.start_over();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
