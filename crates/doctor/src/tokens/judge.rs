//! From comparisons to verdicts: how many were equal, and the first that was not.

use kvasir_prompt::Unrouted;

use super::Own;
use super::ask::{Answer, Unanswered};
use super::find::Found;
use crate::facts::Facts;
use crate::report::{Leg, LegName};
use crate::shown::{shortened, shown};

/// Most characters of an example that are shown, and most ids.
const EXAMPLE: usize = 40;
const IDS: usize = 5;

/// What came of a set of cases.
#[derive(Debug, Default)]
pub(super) struct Tally {
    compared: usize,
    equal: usize,
    /// Equal in that both sides refuse.
    refused: usize,
    /// The first difference, described.
    first: Option<String>,
    /// Why the set was not finished.
    pub(super) stopped: Option<Unanswered>,
}

impl Tally {
    pub(super) fn add(&mut self, own: &Own, answer: &Answer) {
        self.compared += 1;
        let name = own.case.name;
        let difference = match (&own.ids, answer) {
            (Ok(ours), Answer::Ids(theirs)) if ours == theirs => None,
            (Ok(ours), Answer::Ids(theirs)) => Some(differing(own, ours, theirs)),
            (Err(_), Answer::Refused(_)) => {
                self.refused += 1;
                None
            }
            (Ok(ours), Answer::Refused(why)) => Some(format!(
                "`{name}`: the engine refuses what the gateway makes {} tokens of ({})",
                ours.len(),
                shown(why)
            )),
            (Err(why), Answer::Ids(theirs)) => Some(format!(
                "`{name}`: the engine makes {} tokens of it, the gateway none ({}: {})",
                theirs.len(),
                why.as_str(),
                shown(&why.to_string())
            )),
        };
        match difference {
            None => self.equal += 1,
            Some(difference) => {
                self.first.get_or_insert(difference);
            }
        }
    }

    /// Such as `12 of 13 texts equal`.
    fn counts(&self, what: &str) -> String {
        let refused = match self.refused {
            0 => String::new(),
            count => format!(", {count} of them refused by both"),
        };
        format!("{} of {} {what} equal{refused}", self.equal, self.compared)
    }
}

/// The first place where two token lists part.
fn differing(own: &Own, ours: &[u32], theirs: &[u32]) -> String {
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let from = |ids: &[u32]| {
        let shown: Vec<String> = ids.iter().skip(at).take(IDS).map(u32::to_string).collect();
        let more = if ids.len() > at + IDS { ", …" } else { "" };
        format!("[{}{more}] of {}", shown.join(", "), ids.len())
    };
    let text = own.case.prompt();
    let text = text.map_or_else(String::new, |t| format!(" \"{}\"", shortened(t, EXAMPLE)));
    let name = own.case.name;
    format!("`{name}`{text} parts at token {at}: own {}, engine {}", from(ours), from(theirs))
}

/// The leg `tokenizer`.
pub(super) fn tokenizer(found: &Found, facts: &Facts, texts: &Tally) -> Leg {
    let leg = LegName::Tokenizer;
    let counts = texts.counts("texts");
    let place = &found.place;
    if let Some(first) = &texts.first {
        let caveat = found.renderer.caveat().map_or_else(String::new, |why| format!("; {why}"));
        let root = facts.card.models.first().and_then(|model| model.root.as_deref());
        let remedy = format!(
            "point --tokenizer (`tokenizer_dir`) at the files of the very model and revision the \
             engine runs: those of its own --tokenizer, else {}",
            shown(root.unwrap_or(&facts.model))
        );
        return Leg::off(leg, format!("{counts}; {first}; own files: {place}{caveat}"), remedy);
    }
    match &texts.stopped {
        Some(why) if texts.compared == 0 => {
            Leg::unknown(leg, format!("{why}; own files: {place}"), why.remedy())
        }
        Some(why) => Leg::unknown(leg, format!("{counts}, then {why}"), why.remedy()),
        None if texts.compared == 0 => Leg::unknown(
            leg,
            format!("all texts are longer than max_model_len; own files: {place}"),
            "raise --max-model-len on the engine",
        ),
        None if texts.equal == texts.refused => Leg::unknown(
            leg,
            format!("the engine refuses all texts, and so does this side; own files: {place}"),
            "vLLM runs this model with a tokenizer of its own: send token ids where prefix routing \
             matters",
        ),
        None => Leg::ok(leg, format!("{counts}; own files: {place}")),
    }
}

/// The leg `chat_template` of a model whose template is there.
pub(super) fn chats(found: &Found, chats: &Tally, tokenizer_is_off: bool) -> Leg {
    let leg = LegName::ChatTemplate;
    let counts = chats.counts("chats");
    if let Some(first) = &chats.first {
        let remedy = if tokenizer_is_off {
            "put the tokenizer right first: see leg `tokenizer`"
        } else if found.renderer.caveat().is_some() {
            "see the caveat of leg `tokenizer`; else stage the template the engine uses (its \
             --chat-template, or the model's chat_template.jinja) beside tokenizer.json"
        } else {
            "stage the template the engine uses (its --chat-template, or the model's \
             chat_template.jinja) beside tokenizer.json"
        };
        return Leg::off(leg, format!("{counts}; {first}"), remedy);
    }
    match &chats.stopped {
        Some(why) if chats.compared == 0 => Leg::unknown(leg, why.to_string(), why.remedy()),
        Some(why) => Leg::unknown(leg, format!("{counts}, then {why}"), why.remedy()),
        None if chats.equal == chats.refused => Leg::unknown(
            leg,
            format!("{counts}: nothing was compared"),
            "see whether the engine answers chats at all",
        ),
        None => Leg::ok(leg, counts),
    }
}

/// The same where this side has no usable template: one chat was asked for.
pub(super) fn no_template(why: &Unrouted, chats: &Tally) -> Leg {
    let leg = LegName::ChatTemplate;
    let why = shown(&why.to_string());
    match (&chats.stopped, &chats.first) {
        (Some(unanswered), _) => Leg::unknown(
            leg,
            format!("{why}; {unanswered}"),
            "stage the template beside tokenizer.json if the engine serves chats",
        ),
        (None, Some(_)) => Leg::off(
            leg,
            format!("{why}, but the engine serves chats: they are routed by load alone"),
            "stage the template the engine uses (its --chat-template, or the model's \
             chat_template.jinja) beside tokenizer.json",
        ),
        (None, None) => Leg::ok(leg, format!("{why}; the engine refuses chats, too")),
    }
}
