//! Each rule of the state machine, by what it puts out.

use kvasir_testkit::publisher::payload::{self, Form};

use super::*;

mod asking;
mod following;
mod life;

/// A payload that is unlike any other with another mark.
fn payload_of(mark: u64) -> Vec<u8> {
    payload::batch(Form::Map, 0.0, &[payload::stored(&[mark], None, &[1, 2])])
}

fn cleared() -> Vec<u8> {
    payload::batch(Form::Array, 0.0, &[payload::cleared()])
}

fn broken() -> Vec<u8> {
    payload::batch(Form::Array, 0.0, &[payload::malformed()])
}

struct Rig {
    stream: Stream,
    now: Instant,
    said: Vec<String>,
}

impl Rig {
    fn new(replay: bool) -> Self {
        let config = StreamConfig { replay, pending_batches: 5, ..StreamConfig::default() };
        let mut rig =
            Self { stream: Stream::new(config, 7), now: Instant::now(), said: Vec::new() };
        rig.says(&["forget absent(connecting) start"]);
        rig
    }

    /// Connected, with nothing published yet.
    fn exact() -> Self {
        let mut rig = Self::new(true);
        rig.connect();
        rig.says(&["ask 0", "forget catching_up connected"]);
        rig.end();
        rig.says(&["trust exact joined"]);
        rig
    }

    /// Exact, with batches 0 to `last` applied live.
    fn exact_up_to(last: u64) -> Self {
        let mut rig = Self::exact();
        for seq in 0..=last {
            rig.live(seq, seq);
            rig.says(&[&format!("batch {seq}")]);
        }
        rig
    }

    fn connect(&mut self) {
        self.stream.connected(self.now);
    }

    /// The engine says when its process started.
    fn process(&mut self, seconds: f64) {
        self.stream.process_started(self.now, self.now, seconds);
    }

    fn live(&mut self, seq: u64, mark: u64) {
        self.stream.live(self.now, seq, payload_of(mark));
    }

    /// Answers come to questions that have gone out.
    fn answer(&mut self, seq: u64, mark: u64) {
        self.listen();
        self.stream.replay_batch(self.now, seq, payload_of(mark));
    }

    fn answers(&mut self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.answer(seq, seq);
        }
    }

    fn end(&mut self) {
        self.listen();
        self.stream.replay_end(self.now);
    }

    /// Lets time pass, as far as the stream's next deadline.
    fn pass(&mut self) {
        self.now = self.stream.deadline().expect("something is due");
        self.stream.tick(self.now);
    }

    #[track_caller]
    fn says(&mut self, expected: &[&str]) {
        self.listen();
        assert_eq!(std::mem::take(&mut self.said), expected);
    }

    /// Forgets what was said so far.
    fn ignore(&mut self) {
        self.listen();
        self.said.clear();
    }

    fn listen(&mut self) {
        while let Some(output) = self.stream.next_output() {
            self.said.push(match output {
                Output::Ask(start) => format!("ask {start}"),
                Output::Abandon => "abandon".to_owned(),
                Output::Update(Update::Forget { trust, why }) => format!("forget {trust} {why}"),
                Output::Update(Update::Trust { trust, why }) => format!("trust {trust} {why}"),
                Output::Update(Update::Batch { seq, replayed: false, .. }) => {
                    format!("batch {seq}")
                }
                Output::Update(Update::Batch { seq, .. }) => format!("replayed {seq}"),
            });
        }
    }

    fn stats(&self) -> StreamStats {
        self.stream.stats().0
    }
}
