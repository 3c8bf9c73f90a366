//! What a recorded engine held at every step, by the gateway's own code, and what it would have
//! predicted for every recorded request.
//!
//! Nothing here reads events: messages go through `kv_events::stream`, into `fleet::Picture`. What
//! is recorded of the replay socket answers the stream's questions to it, as the socket would have
//! at that moment ([`history`]); it is never taken for live events.

mod history;
mod playback;
mod report;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use kvasir_fleet::{BlockIdentity, EngineCard, PromptTokens};
use kvasir_inventory::Trust;

use self::playback::Playback;
pub use self::report::{
    BlocksByTier, LeftOut, Predicted, ReplayFound, Residency, ResidencyError, SourceState, Step,
    TrustChange,
};
use crate::capture::{Capture, Item, Line, Request, Source};

/// Publishers in one recording.
const MAX_SOURCES: usize = 256;

/// Plays a recording and tells what was held after each step.
///
/// # Errors
/// A recording of more than 256 publishers, or of nothing.
pub fn residency(capture: &Capture) -> Result<Residency, ResidencyError> {
    residency_by(capture, &BlockIdentity::Tokens)
}

/// The same as a gateway sees it that knows blocks by `identity`.
///
/// # Errors
/// As [`residency`].
pub fn residency_by(
    capture: &Capture,
    identity: &BlockIdentity,
) -> Result<Residency, ResidencyError> {
    if capture.lines.is_empty() {
        return Err(ResidencyError::Empty);
    }
    let mut player = Player::new(capture, identity)?;
    for line in &capture.lines {
        let name = step_name(line.step.as_deref(), line.number, &line.item, player.steps.last());
        player.step(name);
        player.play(line);
    }
    player.finish_step();
    let meta = capture.meta.as_ref();
    let hash_contracts = player.sources.iter().map(Playback::hash_contract).collect();
    Ok(Residency {
        hash_contracts,
        engine: meta.and_then(|meta| meta.engine.clone()),
        steps: player.steps,
        requests: player.requests,
        left_out: player.left_out,
    })
}

/// What a step is called: as the recorder did, else by the line it begins at.
fn step_name(told: Option<&str>, line: usize, item: &Item, last: Option<&Step>) -> String {
    match (told, item, last) {
        (Some(name), _, _) => name.to_owned(),
        (None, Item::Link(_), Some(last)) => last.step.clone(),
        (None, Item::Link(_), None) => "start".to_owned(),
        (None, _, _) => format!("line {line}"),
    }
}

struct Player<'a> {
    card: EngineCard,
    sources: Vec<Playback>,
    by_name: HashMap<&'a str, usize>,
    /// Whether null means that nothing was cached: the engine has told a number elsewhere.
    null_is_zero: bool,
    /// The last one is under way.
    steps: Vec<Step>,
    requests: Vec<Predicted>,
    left_out: Vec<LeftOut>,
}

impl<'a> Player<'a> {
    fn new(capture: &'a Capture, identity: &BlockIdentity) -> Result<Self, ResidencyError> {
        let card = capture.meta.as_ref().map(|meta| meta.card.clone()).unwrap_or_default();
        let mut by_name = HashMap::new();
        let mut order: Vec<&Source> = Vec::new();
        for line in &capture.lines {
            if matches!(line.item, Item::Request(_)) {
                continue;
            }
            by_name.entry(line.source.name.as_str()).or_insert_with(|| {
                order.push(&line.source);
                order.len() - 1
            });
        }
        if order.len() > MAX_SOURCES {
            return Err(ResidencyError::TooManySources(order.len()));
        }
        let sources =
            order.into_iter().map(|source| Playback::new(capture, source, identity, &card));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let null_is_zero = capture
            .lines
            .iter()
            .any(|line| matches!(&line.item, Item::Request(request) if request.told));
        Ok(Self {
            card,
            sources,
            by_name,
            null_is_zero,
            steps: Vec::new(),
            requests: Vec::new(),
            left_out: Vec::new(),
        })
    }

    /// Begins a step, unless it is the one under way.
    fn step(&mut self, name: String) {
        if self.steps.last().is_some_and(|step| step.step == name) {
            return;
        }
        self.finish_step();
        self.steps.push(Step::new(name));
    }

    fn finish_step(&mut self) {
        let Some(step) = self.steps.last_mut() else { return };
        step.finish(self.sources.iter().map(Playback::state).collect());
        for source in &mut self.sources {
            step.changes.extend(source.take_changes());
        }
    }

    fn play(&mut self, line: &Line) {
        let source = self.by_name.get(line.source.name.as_str());
        match (&line.item, source.and_then(|at| self.sources.get_mut(*at))) {
            (Item::Request(request), _) => {
                if line.at.is_some() {
                    let card = &self.card;
                    self.sources.iter_mut().for_each(|source| source.pass(line.at, card));
                }
                self.request(request);
            }
            (Item::Live(live), Some(source)) => source.live(line.at, live.as_ref(), &self.card),
            (Item::Link(link), Some(source)) => source.link(line.at, *link, &self.card),
            (Item::Replay(replay), Some(source)) => {
                let found = source.replay(line.at, replay, &self.card);
                if let Some(step) = self.steps.last_mut() {
                    step.replays.push(found);
                }
            }
            (_, None) => {}
        }
    }

    fn request(&mut self, request: &Request) {
        if request.resets_cache {
            self.sources.iter_mut().for_each(Playback::reset_asked);
        }
        if request.api.is_none() {
            return;
        }
        let step = self.steps.last().map(|step| step.step.clone()).unwrap_or_default();
        let predicted = self.predict(request);
        match predicted {
            Ok((source, predicted)) => {
                self.requests.push(Predicted { step, ..predicted });
                self.note_extras(request, Some(source));
            }
            Err(why) => {
                self.left_out.push(LeftOut { step, why });
                self.note_extras(request, self.source_of(request).ok());
            }
        }
    }

    /// The prediction and whom it is for, or why there is none to compare.
    fn predict(&self, request: &Request) -> Result<(usize, Predicted), &'static str> {
        let found = request.comparable.as_ref().map_err(|why| *why)?;
        let at = self.source_of(request)?;
        let reported = match found.reported {
            Some(reported) => reported,
            None if self.null_is_zero => 0,
            None => return Err("cached_tokens_not_told"),
        };
        let source = self.sources.get(at).ok_or("no_events")?;
        let asked = &request.asked;
        let prompts = std::slice::from_ref(&found.tokens);
        let tokens = PromptTokens {
            prompts: Some(prompts),
            count: found.tokens.len() as u64,
            exact: true,
            adapter: asked.model.as_deref().filter(|name| self.card.adapter(name).is_some()),
            salt: asked.salt.as_deref(),
        };
        let held = u64::from(source.predict(&tokens, &self.card));
        // What the engine does not say in events, but its own rules and the recording do.
        let note = match (asked.prompt_logprobs, source.awaits_clear()) {
            _ if held == 0 => None,
            (true, _) => Some("prompt_logprobs"),
            (_, true) => Some("reset_not_announced"),
            _ => None,
        };
        let predicted = Predicted {
            step: String::new(),
            prompt_tokens: found.tokens.len() as u64,
            predicted_cached_tokens: if note.is_some() { 0 } else { held },
            reported_cached_tokens: reported,
            held_tokens: note.map(|_| held),
            note,
        };
        Ok((at, predicted))
    }

    /// The publisher of the engine that served a request.
    fn source_of(&self, request: &Request) -> Result<usize, &'static str> {
        match (self.sources.len(), request.rank) {
            (0, _) => Err("no_events"),
            (1, _) => Ok(0),
            (_, None) => Err("rank_not_told"),
            (_, Some(rank)) => {
                let at = self.sources.iter().position(|source| source.rank() == Some(rank));
                at.ok_or("rank_not_told")
            }
        }
    }

    /// As the gateway does once a request is on its way: blocks of an engine that does not publish
    /// what they were hashed with are in doubt from now on.
    fn note_extras(&mut self, request: &Request, source: Option<usize>) {
        let asked = &request.asked;
        let adapter = asked.model.as_deref().is_some_and(|name| self.card.adapter(name).is_some());
        if asked.salt.is_none() && !adapter && !asked.multimodal {
            return;
        }
        for (at, playback) in self.sources.iter_mut().enumerate() {
            if source.is_none_or(|source| source == at) {
                playback.carried_extras();
            }
        }
    }
}

/// The least of several.
pub(crate) fn weakest(trusts: impl IntoIterator<Item = Trust>) -> Option<Trust> {
    let rank = |trust: &Trust| match trust {
        Trust::Exact => 0,
        Trust::Partial(_) => 1,
        Trust::CatchingUp => 2,
        Trust::Absent(_) => 3,
        Trust::Suspect(_) => 4,
    };
    trusts.into_iter().max_by_key(rank)
}
