//! Own tokens against the engine's `/tokenize`.

mod ask;
mod cases;
mod find;
mod judge;

use std::sync::Arc;

use kvasir_fleet::EngineKind;
use kvasir_prompt::{Api, Renderer, Unrouted};

use self::ask::Unanswered;
use self::cases::Case;
use self::find::Found;
use self::judge::Tally;
use crate::facts::Facts;
use crate::report::{Leg, LegName, Verdict};
use crate::target::Target;

/// A case and what this side makes of it.
#[derive(Debug)]
struct Own {
    case: Case,
    body: Vec<u8>,
    ids: Result<Vec<u32>, Unrouted>,
}

/// Adds the legs `tokenizer` and `chat_template`, and keeps the renderer in `facts`.
pub(crate) async fn compare(target: &Target, facts: &mut Facts, legs: &mut Vec<Leg>) {
    let found = match find::find(target, facts).await {
        Ok(found) => found,
        Err(why) => {
            legs.push(Leg::off(
                LegName::Tokenizer,
                format!("{why}; without it requests are routed by load alone"),
                "stage the model's tokenizer.json and point --tokenizer (`tokenizer_dir` in a \
                 configuration) at it",
            ));
            legs.push(Leg::unknown(
                LegName::ChatTemplate,
                "there is no tokenizer to compare with",
                "see leg `tokenizer`",
            ));
            return;
        }
    };
    facts.renderer = Some(Arc::clone(&found.renderer));
    let texts = run(target, facts, &found, Api::Completions, cases::texts(&found.special)).await;
    let tokenizer = judge::tokenizer(&found, facts, &texts);
    let tokenizer_is_off = tokenizer.verdict == Verdict::Off;
    legs.push(tokenizer);
    legs.push(chat_template(target, facts, &found, texts.stopped, tokenizer_is_off).await);
}

/// The leg of the chat template. Where the engine did not answer for texts, it is not asked again.
async fn chat_template(
    target: &Target,
    facts: &Facts,
    found: &Found,
    stopped: Option<Unanswered>,
    tokenizer_is_off: bool,
) -> Leg {
    if facts.kind == EngineKind::LlamaCpp {
        return Leg::unknown(
            LegName::ChatTemplate,
            "llama.cpp's /tokenize takes no chats",
            "compare usage.prompt_tokens of a chat with what the gateway counts",
        );
    }
    if let Some(why) = stopped {
        return Leg::unknown(LegName::ChatTemplate, why.to_string(), why.remedy());
    }
    if found.renderer.is_harmony() {
        return Leg::unknown(
            LegName::ChatTemplate,
            "chats of this model are encoded as harmony, but the engine's /tokenize renders the \
             template: it cannot be judged by that",
            "compare usage.prompt_tokens of a chat with what the gateway counts",
        );
    }
    if let Some(why) = approximated(&found.renderer) {
        return Leg::unknown(
            LegName::ChatTemplate,
            format!("{why}: what chats of this model are routed by is approximate"),
            "send token ids to /v1/completions where prefix routing matters",
        );
    }
    let standing = found.renderer.chat_state().err();
    let mut chats = cases::chats();
    if standing.is_some() {
        // One is enough to see whether the engine has a template.
        chats.truncate(1);
    }
    let chats = run(target, facts, found, Api::Chat, chats).await;
    match standing {
        Some(why) => judge::no_template(&why, &chats),
        None => judge::chats(found, &chats, tokenizer_is_off),
    }
}

/// Why no chat of this model is more than approximately known, if so.
fn approximated(renderer: &Renderer) -> Option<Unrouted> {
    let chat = br#"{"messages":[{"role":"user","content":"a"}]}"#;
    renderer.prompts(Api::Chat, chat).ok()?.why
}

/// Tokenises every case on both sides; ends early when the engine does not answer.
async fn run(target: &Target, facts: &Facts, found: &Found, api: Api, cases: Vec<Case>) -> Tally {
    let renderer = Arc::clone(&found.renderer);
    let model = facts.model.clone();
    let longest = facts.longest_prompt();
    let own = tokio::task::spawn_blocking(move || own_tokens(&renderer, api, &model, cases)).await;
    let mut tally = Tally::default();
    let own = match own {
        Ok(own) => own,
        Err(error) => {
            tally.stopped = Some(Unanswered::Own(error.to_string()));
            return tally;
        }
    };
    for own in own {
        if own.ids.as_ref().is_ok_and(|ids| ids.len() as u64 > longest) {
            continue;
        }
        match ask::tokenize(target, facts, api, &own).await {
            Ok(answer) => tally.add(&own, &answer),
            Err(why) => {
                tally.stopped = Some(why);
                break;
            }
        }
    }
    tally
}

fn own_tokens(renderer: &Renderer, api: Api, model: &str, cases: Vec<Case>) -> Vec<Own> {
    let tokenise = |case: Case| {
        let body = case.body(model);
        let ids = renderer.prompts(api, &body).and_then(|mut read| match read.why {
            None => Ok(read.prompts.pop().unwrap_or_default()),
            Some(why) => Err(why),
        });
        Own { case, body, ids }
    };
    cases.into_iter().map(tokenise).collect()
}
