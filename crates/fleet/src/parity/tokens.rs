//! The third oracle: our count of prompt tokens against the engine's, per model and API.
//!
//! A difference is a property of the model's template and tokenizer here and there: another template
//! at the engine, other special tokens, another tokenizer. The prompt that was looked up is then not
//! the engine's, and what the engine hits of it says nothing of its events. While the difference
//! lasts, prompts of that model and API are an approximation (level `text`, `token_mismatch`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::report::{Report, bounded};
use super::window::Window;

/// Models (adapters are models too) and APIs that are told apart at most.
const MAX_ENTRIES: usize = 1024;
/// Between two log lines about one model and API.
const LOG_EVERY: Duration = Duration::from_secs(600);

/// Our counts and the engines', for the models of one pool.
#[derive(Debug, Default)]
pub struct TokenParity {
    /// Whether any entry is a mismatch: requests ask no further while none is.
    any: AtomicBool,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The tokenizer all of it is about.
    loads: u64,
    entries: HashMap<(String, &'static str), Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    window: Window,
    equal: u64,
    different: u64,
    example: Option<TokenExample>,
    logged: Option<Instant>,
}

/// A request whose prompt an engine counted otherwise, for the operator to look into. It holds
/// nothing of the prompt: the request's id leads to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenExample {
    /// The client's name for the request.
    pub request_id: Option<String>,
    /// The endpoint that answered ([`Endpoint::name`](crate::Endpoint::name)).
    pub endpoint: String,
    /// Whether the answer was streamed.
    pub streamed: bool,
    /// Prompt tokens by our count.
    pub counted: u64,
    /// Prompt tokens by the engine's.
    pub reported: u64,
}

/// What is known of one model and API, for metrics and people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenState {
    /// The model asked for.
    pub model: String,
    /// The API.
    pub api: &'static str,
    /// Whether counts differ too often for the prompts to be taken as known.
    pub mismatch: bool,
    /// Answers whose count is ours.
    pub equal: u64,
    /// Answers whose count is another.
    pub different: u64,
    /// The last of these.
    pub example: Option<TokenExample>,
}

impl TokenExample {
    fn shown(&self) -> Value {
        let Self { request_id, endpoint, streamed, counted, reported } = self;
        json!({
            "request_id": request_id,
            "endpoint": endpoint,
            "stream": streamed,
            "counted_prompt_tokens": counted,
            "reported_prompt_tokens": reported,
        })
    }
}

impl TokenState {
    /// For people and other programs.
    #[must_use]
    pub fn shown(&self) -> Value {
        let Self { model, api, mismatch, equal, different, example } = self;
        json!({
            "model": model,
            "api": api,
            "token_mismatch": mismatch,
            "equal": equal,
            "different": different,
            "example": example.as_ref().map(TokenExample::shown),
        })
    }
}

impl Counted {
    /// The entry of a model and API, for the tokenizer that is the `loads`-th in use: of one before
    /// nothing counts any more. `None` where there are too many.
    fn entry(&mut self, loads: u64, key: (String, &'static str)) -> Option<&mut Entry> {
        if loads < self.loads {
            return None;
        }
        if loads > self.loads {
            *self = Self { loads, ..Self::default() };
        }
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key) {
            return None;
        }
        Some(self.entries.entry(key).or_default())
    }
}

/// Says what an answer showed, where it is worth a line.
fn tell(
    model: &str,
    api: &'static str,
    mismatch: bool,
    (example, changed): (Option<TokenExample>, bool),
) {
    if let Some(example) = example {
        let TokenExample { request_id, endpoint, streamed, counted, reported } = example;
        tracing::warn!(
            model,
            api,
            endpoint,
            request_id,
            streamed,
            counted,
            reported,
            mismatch,
            "engine counts other prompt tokens: template or tokenizer differ"
        );
    } else if changed {
        tracing::info!(model, api, mismatch, "engine counts the same prompt tokens again");
    }
}

impl TokenParity {
    /// Whether prompts of `model` at this API are an approximation, by the tokenizer that is the
    /// `loads`-th in use.
    #[must_use]
    pub fn mismatch(&self, loads: u64, model: &str, api: &'static str) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let counted = self.counted.lock();
        let entry = counted.entries.get(&(model.to_owned(), api));
        counted.loads == loads && entry.is_some_and(|entry| entry.window.mismatch())
    }

    /// Takes in an answer to a prompt of `counted` tokens, by the tokenizer that is the `loads`-th
    /// in use. What a broken answer or none says does not count.
    pub fn judge(
        &self,
        loads: u64,
        model: &str,
        endpoint: &str,
        counted: u64,
        report: &Report<'_>,
    ) {
        let Some(reported) = report.prompt_tokens.filter(|_| report.clean) else { return };
        let mut known = self.counted.lock();
        let key = (model.to_owned(), report.api);
        let Some(entry) = known.entry(loads, key) else { return };
        let differs = counted != reported;
        let changed = entry.window.note(differs);
        let mut log = None;
        if differs {
            entry.different += 1;
            let example = TokenExample {
                request_id: bounded(report.request_id),
                endpoint: endpoint.to_owned(),
                streamed: report.streamed,
                counted,
                reported,
            };
            let due = entry.logged.is_none_or(|at| at.elapsed() >= LOG_EVERY);
            if due || (changed && entry.window.mismatch()) {
                entry.logged = Some(Instant::now());
                log = Some(example.clone());
            }
            entry.example = Some(example);
        } else {
            entry.equal += 1;
        }
        let mismatch = entry.window.mismatch();
        let any = known.entries.values().any(|entry| entry.window.mismatch());
        self.any.store(any, Ordering::Relaxed);
        drop(known);
        tell(model, report.api, mismatch, (log, changed));
    }

    /// What is known, by model and API.
    #[must_use]
    pub fn states(&self) -> Vec<TokenState> {
        let counted = self.counted.lock();
        let mut states: Vec<TokenState> = counted
            .entries
            .iter()
            .map(|((model, api), entry)| TokenState {
                model: model.clone(),
                api,
                mismatch: entry.window.mismatch(),
                equal: entry.equal,
                different: entry.different,
                example: entry.example.clone(),
            })
            .collect();
        drop(counted);
        states.sort_by(|a, b| (&a.model, a.api).cmp(&(&b.model, b.api)));
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = "chat";

    fn report(api: &'static str, prompt_tokens: Option<u64>) -> Report<'static> {
        Report {
            api,
            streamed: false,
            request_id: Some("ask"),
            clean: true,
            prompt_tokens,
            cached_tokens: None,
            evicted: 0,
        }
    }

    fn answer(parity: &TokenParity, loads: u64, api: &'static str, reported: u64) {
        parity.judge(loads, "m", "http://e", 100, &report(api, Some(reported)));
    }

    #[test]
    fn a_mismatch_is_of_one_model_and_api_and_ends_as_it_began() {
        let parity = TokenParity::default();
        for n in 0..8 {
            assert!(!parity.mismatch(1, "m", CHAT), "{n}");
            answer(&parity, 1, CHAT, 107);
            answer(&parity, 1, "completions", 100);
        }
        assert!(parity.mismatch(1, "m", CHAT));
        assert!(!parity.mismatch(1, "m", "completions"));
        assert!(!parity.mismatch(1, "other", CHAT) && !parity.mismatch(2, "m", CHAT));
        let [chat, plain] = parity.states().try_into().unwrap();
        assert_eq!((chat.api, chat.equal, chat.different, chat.mismatch), (CHAT, 0, 8, true));
        assert_eq!((plain.equal, plain.different, plain.example), (8, 0, None));
        let example = chat.example.unwrap();
        assert_eq!((example.request_id.as_deref(), &*example.endpoint), (Some("ask"), "http://e"));
        assert_eq!((example.counted, example.reported), (100, 107));
        for n in 0..13 {
            assert!(parity.mismatch(1, "m", CHAT), "{n}");
            answer(&parity, 1, CHAT, 100);
        }
        assert!(!parity.mismatch(1, "m", CHAT));
    }

    #[test]
    fn another_tokenizer_begins_anew_and_late_answers_of_the_old_one_do_not_count() {
        let parity = TokenParity::default();
        (0..8).for_each(|_| answer(&parity, 1, CHAT, 107));
        answer(&parity, 2, CHAT, 100);
        answer(&parity, 1, CHAT, 107);
        assert!(!parity.mismatch(1, "m", CHAT) && !parity.mismatch(2, "m", CHAT));
        let [state] = parity.states().try_into().unwrap();
        assert_eq!((state.equal, state.different), (1, 0));
    }

    #[test]
    fn broken_and_silent_answers_do_not_count_and_models_are_bounded() {
        let parity = TokenParity::default();
        parity.judge(1, "m", "e", 100, &report(CHAT, None));
        parity.judge(1, "m", "e", 100, &Report { clean: false, ..report(CHAT, Some(7)) });
        assert!(parity.states().is_empty());
        for n in 0..2 * MAX_ENTRIES {
            parity.judge(1, &n.to_string(), "e", 100, &report(CHAT, Some(7)));
        }
        assert_eq!(parity.states().len(), MAX_ENTRIES);
    }
}
