//! Whether own tokens are the engines': their `/tokenize` as an oracle, off the request path.
//!
//! A wrong tokenizer or template is a property of the model here, not of one request or engine. The
//! built-in texts and chats show it before traffic does; requests that came by, now and then, show
//! what they leave out. While tokens are known to differ, no prompt counts as exactly known.

mod cases;
mod checker;
mod question;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_prompt::{Api, Renderer};
use parking_lot::Mutex;

pub use self::cases::{ProbeCase, probe_chats, probe_texts};
pub(crate) use self::checker::Checker;
use crate::parity::window::Window;
use crate::spec::ParityMode;

/// Between two requests of one model that are compared.
const SAMPLE_PAUSE: Duration = Duration::from_secs(10);
/// Bodies above this are not compared.
const SAMPLE_BYTES: usize = 16 << 10;
/// How long a request waits for an engine that is not busy; then it is not compared.
const SAMPLE_PATIENCE: Duration = Duration::from_secs(5);

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityPart {
    /// Text to ids.
    Tokenizer,
    /// Conversations to text, and that to ids.
    Template,
}

impl ParityPart {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tokenizer, Self::Template];

    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tokenizer => "tokenizer",
            Self::Template => "template",
        }
    }
}

/// What comparisons have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// Nothing was compared yet, or nothing can be.
    Unchecked,
    /// Own tokens are the engines'.
    Equal,
    /// They are not.
    Different,
}

impl Parity {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Unchecked, Self::Equal, Self::Different];

    /// The word used in metrics and `/readyz`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unchecked => "unchecked",
            Self::Equal => "equal",
            Self::Different => "different",
        }
    }
}

/// One model's comparisons.
#[derive(Debug)]
pub struct TokenOracle {
    pub(crate) mode: ParityMode,
    tokenizer: Part,
    template: Part,
    /// The next request to be compared.
    sample: Mutex<Option<Sample>>,
    born: Instant,
    /// Milliseconds after `born` from which on another request is taken.
    next_sample: AtomicU64,
}

#[derive(Debug, Default)]
struct Part {
    judged: Mutex<Judged>,
    /// The state is [`Parity::Different`].
    differs: AtomicBool,
    equal: AtomicU64,
    different: AtomicU64,
    skipped: AtomicU64,
}

/// What the comparisons with the tokenizer loaded now have shown.
#[derive(Debug, Default)]
struct Judged {
    /// Whether the built-in cases were all equal, once they were compared.
    probes: Option<bool>,
    samples: Window,
    /// The first difference was logged.
    told: bool,
}

/// A request whose tokens are to be compared.
#[derive(Debug)]
struct Sample {
    api: Api,
    body: Bytes,
    ids: Vec<u32>,
    /// What made the ids: they say nothing of another tokenizer that was loaded since.
    made_by: Weak<Renderer>,
    taken: Instant,
}

/// A comparison, for the log.
#[derive(Clone, Copy, Debug)]
struct Compared<'a> {
    model: &'a str,
    endpoint: &'a str,
    /// The built-in case, or `request`.
    case: &'a str,
    own: &'a [u32],
    engine: &'a [u32],
}

impl TokenOracle {
    pub(crate) fn new(mode: ParityMode) -> Self {
        Self {
            mode,
            tokenizer: Part::default(),
            template: Part::default(),
            sample: Mutex::new(None),
            born: Instant::now(),
            next_sample: AtomicU64::new(0),
        }
    }

    /// The state of one part.
    #[must_use]
    pub fn state(&self, part: ParityPart) -> Parity {
        self.part(part).judged.lock().state()
    }

    /// Whether the tokens of requests to `api` are known to be others than the engine's.
    #[must_use]
    pub fn differs(&self, api: Api) -> bool {
        let by_template = matches!(api, Api::Chat | Api::Responses | Api::Messages);
        let differs = |part: &Part| part.differs.load(Ordering::Relaxed);
        differs(&self.tokenizer) || (by_template && differs(&self.template))
    }

    /// A request came by whose tokens `made_by` knows exactly: it is compared later, if it is time
    /// for one.
    pub fn offer(&self, api: Api, body: &Bytes, ids: &[u32], made_by: &Arc<Renderer>) {
        let can_be_asked = match api {
            Api::Completions => true,
            Api::Chat => !made_by.is_harmony(),
            _ => false,
        };
        if self.mode != ParityMode::Sample || body.len() > SAMPLE_BYTES || !can_be_asked {
            return;
        }
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = self.next_sample.load(Ordering::Relaxed);
        if now < due {
            return;
        }
        let next = now.saturating_add(SAMPLE_PAUSE.as_millis() as u64);
        let order = Ordering::Relaxed;
        if self.next_sample.compare_exchange(due, next, order, order).is_err() {
            return;
        }
        let (body, ids, made_by) = (body.clone(), ids.to_vec(), Arc::downgrade(made_by));
        *self.sample.lock() = Some(Sample { api, body, ids, made_by, taken: Instant::now() });
    }

    /// How many comparisons of one part were equal, different, and left out: refused by the engine,
    /// not to be asked, or at a time when all engines were busy.
    pub(crate) fn counts(&self, part: ParityPart) -> [(&'static str, u64); 3] {
        let part = self.part(part);
        [
            ("equal", part.equal.load(Ordering::Relaxed)),
            ("different", part.different.load(Ordering::Relaxed)),
            ("skipped", part.skipped.load(Ordering::Relaxed)),
        ]
    }

    fn take_sample(&self) -> Option<Sample> {
        self.sample.lock().take()
    }

    /// No engine could be asked now: the request waits, unless it has waited long or another is there.
    fn put_back(&self, part: ParityPart, sample: Sample) {
        let mut place = self.sample.lock();
        if place.is_none() && sample.taken.elapsed() < SAMPLE_PATIENCE {
            *place = Some(sample);
            return;
        }
        drop(place);
        self.note_skipped(part);
    }

    /// Another tokenizer was loaded: nothing is known of it.
    fn reset(&self) {
        *self.sample.lock() = None;
        for part in [&self.tokenizer, &self.template] {
            *part.judged.lock() = Judged::default();
            part.differs.store(false, Ordering::Relaxed);
        }
    }

    fn note_skipped(&self, part: ParityPart) {
        self.part(part).skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a comparison of one part, and logs the first difference: the ids, never the text.
    fn count(&self, part: ParityPart, compared: Compared<'_>) -> bool {
        let Compared { model, endpoint, case, own, engine } = compared;
        let name = part.as_str();
        let part = self.part(part);
        let equal = own == engine;
        let counter = if equal { &part.equal } else { &part.different };
        counter.fetch_add(1, Ordering::Relaxed);
        if !equal && !std::mem::replace(&mut part.judged.lock().told, true) {
            let at = own.iter().zip(engine).take_while(|(a, b)| a == b).count();
            tracing::warn!(
                model,
                endpoint,
                part = name,
                case,
                position = at,
                own_id = own.get(at),
                engine_id = engine.get(at),
                own_tokens = own.len(),
                engine_tokens = engine.len(),
                "own tokens are not the engine's"
            );
        }
        equal
    }

    /// Takes in what a round of the built-in cases, or one request, has shown of one part.
    fn conclude(&self, part: ParityPart, model: &str, what: Shown) {
        let name = part.as_str();
        let part = self.part(part);
        let mut judged = part.judged.lock();
        let before = judged.state();
        match what {
            Shown::Probes { equal } => judged.probes = Some(equal),
            Shown::Sample { equal } => {
                judged.samples.note(!equal);
            }
        }
        let now = judged.state();
        part.differs.store(now == Parity::Different, Ordering::Relaxed);
        drop(judged);
        match now {
            _ if now == before => {}
            Parity::Different => tracing::error!(
                model,
                part = name,
                "own tokens differ from the engines': no prompt of this model counts as exactly known"
            ),
            _ => tracing::info!(model, part = name, "own tokens are the engines'"),
        }
    }

    fn part(&self, part: ParityPart) -> &Part {
        match part {
            ParityPart::Tokenizer => &self.tokenizer,
            ParityPart::Template => &self.template,
        }
    }
}

/// What was compared.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Probes { equal: bool },
    Sample { equal: bool },
}

impl Judged {
    fn state(&self) -> Parity {
        if self.probes == Some(false) || self.samples.mismatch() {
            Parity::Different
        } else if self.probes == Some(true) || !self.samples.is_unused() {
            Parity::Equal
        } else {
            Parity::Unchecked
        }
    }
}
