//! The publishers that are listened to, and the questions that are open at their replay sockets.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use kvasir_kv_events::{Answer, Heard, Tap, parse_answer, parse_live};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::seconds;
use crate::capture::hex;
use crate::record::RecordError;
use crate::record::decoded::view;
use crate::record::engine::Publisher;

/// Silence after which a replay is taken to be over.
const SILENT: Duration = Duration::from_secs(3);
/// Bytes of one replay; what comes after is left out.
const MAX_REPLAY: usize = 64 << 20;

/// All publishers.
pub(super) struct Listening {
    ears: Vec<Ear>,
    /// Where to listen next: each has its turn.
    turn: usize,
}

/// One publisher.
struct Ear {
    label: Option<(String, u32)>,
    address: String,
    tap: Tap,
    has_replay: bool,
    connected: bool,
    /// Whether it was connected before: what it holds may be another life's.
    again: bool,
    /// The number of the last batch heard.
    last: Option<u64>,
    question: Option<Question>,
}

/// A question that is being answered.
struct Question {
    label: &'static str,
    from: u64,
    replies: Vec<Value>,
    bytes: usize,
    due: Instant,
}

/// Something heard, and from whom.
pub(super) enum Sound {
    Message { ear: usize, at: SystemTime, parts: Vec<Vec<u8>> },
    Answer { ear: usize, parts: Vec<Vec<u8>> },
    Link { ear: usize, at: SystemTime, connected: bool },
}

impl Listening {
    pub(super) fn start(publishers: &[Publisher]) -> Result<Self, RecordError> {
        let ear = |publisher: &Publisher| {
            let config = publisher.config.clone();
            Ok(Ear {
                label: publisher.label.clone(),
                address: config.address.to_string(),
                has_replay: config.replay.is_some(),
                tap: Tap::spawn(config)?,
                connected: false,
                again: false,
                last: None,
                question: None,
            })
        };
        let ears = publishers.iter().map(ear).collect::<Result<Vec<_>, RecordError>>()?;
        Ok(Self { ears, turn: 0 })
    }

    /// The address of a publisher that is not connected.
    pub(super) fn unconnected(&self) -> Option<&str> {
        self.ears.iter().find(|ear| !ear.connected).map(|ear| ear.address.as_str())
    }

    /// The next sound of any publisher. Cancel safe.
    pub(super) async fn hear(&mut self) -> Result<Sound, RecordError> {
        let (ear, (at, heard)) = poll_fn(|cx| {
            for step in 0..self.ears.len() {
                let ear = (self.turn + step) % self.ears.len();
                if let Some(found) = self.ears.get_mut(ear)
                    && let Poll::Ready(heard) = found.tap.poll_recv(cx)
                {
                    self.turn = ear + 1;
                    return Poll::Ready(heard.map(|heard| (ear, heard)));
                }
            }
            Poll::Pending
        })
        .await
        .ok_or(RecordError::Deaf)?;
        Ok(match heard {
            Heard::Live(parts) => Sound::Message { ear, at, parts },
            Heard::Answer(parts) => Sound::Answer { ear, parts },
            Heard::Connected => Sound::Link { ear, at, connected: true },
            Heard::Disconnected => Sound::Link { ear, at, connected: false },
        })
    }

    /// Asks every replay socket from the last batch heard on, or for all there is.
    pub(super) fn ask_all(&mut self, label: &'static str) {
        self.ears.iter_mut().for_each(|ear| ear.ask(label));
    }

    /// When the open question that was silent longest is to be given up.
    pub(super) fn due(&self) -> Option<Instant> {
        self.ears.iter().filter_map(|ear| ear.question.as_ref()).map(|open| open.due).min()
    }

    /// The lines of questions whose answers have ceased to come.
    pub(super) fn overdue(&mut self, step: &str) -> Vec<Value> {
        let now = Instant::now();
        let mut lines = Vec::new();
        for ear in &mut self.ears {
            if ear.question.as_ref().is_some_and(|open| open.due <= now) {
                lines.extend(ear.answered(step));
            }
        }
        lines
    }

    /// The line for a sound, once it is complete.
    pub(super) fn line(&mut self, sound: Sound, step: &str) -> Option<Value> {
        match sound {
            Sound::Message { ear, at, parts } => self.ears.get_mut(ear)?.message(at, &parts, step),
            Sound::Answer { ear, parts } => self.ears.get_mut(ear)?.answer(&parts, step),
            Sound::Link { ear, at, connected } => self.ears.get_mut(ear)?.link(at, connected, step),
        }
    }
}

impl Ear {
    fn message(&mut self, at: SystemTime, parts: &[Vec<u8>], step: &str) -> Option<Value> {
        if let Ok(live) = parse_live(parts) {
            self.last = Some(live.seq);
        }
        Some(self.labelled(json!({"kind": "frames", "step": step, "socket": "pub",
            "t": seconds(at), "frames_hex": in_hex(parts), "decoded": view(parts)})))
    }

    fn link(&mut self, at: SystemTime, connected: bool, step: &str) -> Option<Value> {
        self.connected = connected;
        // Whoever answers now may be another engine: only its whole history tells.
        self.last = None;
        if connected && std::mem::replace(&mut self.again, true) {
            self.ask("reconnected");
        }
        let state = if connected { "connected" } else { "disconnected" };
        Some(self.labelled(json!({"kind": "link", "step": step, "t": seconds(at), "state": state})))
    }

    fn ask(&mut self, label: &'static str) {
        if !self.has_replay {
            return;
        }
        let from = self.last.unwrap_or(0);
        self.tap.ask(from);
        let due = Instant::now() + SILENT;
        self.question = Some(Question { label, from, replies: Vec::new(), bytes: 0, due });
    }

    fn answer(&mut self, parts: &[Vec<u8>], step: &str) -> Option<Value> {
        let open = self.question.as_mut()?;
        open.due = Instant::now() + SILENT;
        open.bytes += parts.iter().map(Vec::len).sum::<usize>();
        let over = open.bytes > MAX_REPLAY;
        if !over {
            open.replies.push(json!({"frames_hex": in_hex(parts), "decoded": view(parts)}));
        }
        let ended = over || parse_answer(parts) == Ok(Answer::End);
        if ended { self.answered(step) } else { None }
    }

    /// The line of the open question, which is open no more.
    fn answered(&mut self, step: &str) -> Option<Value> {
        let Question { label, from, replies, .. } = self.question.take()?;
        let asked = in_hex(&[Vec::new(), from.to_be_bytes().to_vec()]);
        Some(self.labelled(json!({"kind": "replay", "step": step, "label": label,
            "socket": "DEALER", "request_frames_hex": asked, "replies": replies})))
    }

    /// Says on a line whose it is, where there are several.
    fn labelled(&self, mut line: Value) -> Value {
        if let Some((endpoint, rank)) = &self.label {
            line["endpoint"] = endpoint.as_str().into();
            line["dp_rank"] = (*rank).into();
        }
        line
    }
}

fn in_hex(parts: &[Vec<u8>]) -> Vec<String> {
    parts.iter().map(|part| hex(part)).collect()
}
