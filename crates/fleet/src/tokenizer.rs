//! A pool's tokenizer: found and loaded in the background, retried while it is missing, loaded anew
//! when its files change.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use kvasir_prompt::{CivilTime, Limits, Located, Renderer, Source, locate};
use tokio::sync::Mutex;

use crate::template_state::TemplateState;

/// How long a failed load rests before it is tried again, and loaded files before they are looked at.
const RETRY: Duration = Duration::from_secs(15);

/// The state of a model's tokenizer.
#[derive(Clone, Debug)]
pub enum PromptState {
    /// Not looked for yet.
    Pending,
    /// In use.
    Ready(Arc<Renderer>),
    /// Not usable; the text says where it was looked for and what was wrong.
    Missing(Arc<str>),
}

/// One model's way from text to tokens.
#[derive(Debug)]
pub struct ModelPrompts {
    model: String,
    staged: Option<PathBuf>,
    limits: Limits,
    state: ArcSwap<PromptState>,
    /// Which place the tokenizer in use was found in.
    source: parking_lot::Mutex<Option<Source>>,
    /// Grows with every tokenizer that comes into use.
    loads: AtomicU64,
    /// What chats have shown of the template in use.
    template: TemplateState,
    /// When the last attempt began, and for which engine root. Held while one is under way, so
    /// that the monitors of one pool do not load it twice.
    attempt: Mutex<Option<(Instant, Option<String>)>>,
}

impl ModelPrompts {
    pub(crate) fn new(model: String, staged: Option<PathBuf>, limits: Limits) -> Self {
        Self {
            model,
            staged,
            limits,
            state: ArcSwap::from_pointee(PromptState::Pending),
            source: parking_lot::Mutex::new(None),
            loads: AtomicU64::new(0),
            template: TemplateState::default(),
            attempt: Mutex::new(None),
        }
    }

    /// The sizes above which only the head of a prompt is tokenised, or nothing.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> Arc<PromptState> {
        self.state.load_full()
    }

    /// Which place the tokenizer in use was found in.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        *self.source.lock()
    }

    /// Grows with every tokenizer that comes into use: what was seen of one says nothing of another.
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Acquire)
    }

    /// A chat was rendered by the template, or could not be: what it says of the template.
    pub fn note_chat(&self, rendered: bool) {
        self.template.note(&self.model, rendered);
    }

    /// Whether the template in use renders chats, and why not; `None` where no tokenizer is in use.
    pub(crate) fn template_state(&self) -> Option<(&'static str, &'static str)> {
        Some(self.template.words(&*self.ready()?))
    }

    /// Looks for the tokenizer unless it was just looked for with the same `root`; one that is
    /// there is loaded anew when its files have changed. Before the engine has said where it
    /// loaded the model from, not finding it is no news.
    pub(crate) async fn ensure(self: &Arc<Self>, root: Option<String>, engine_known: bool) {
        let mut attempt = self.attempt.lock().await;
        // Where a tokenizer is, another root finds no better one.
        let asked = if self.ready().is_some() { None } else { root.as_deref() };
        if !is_due(attempt.as_ref(), asked) {
            return;
        }
        *attempt = Some((Instant::now(), root.clone()));
        let this = Arc::clone(self);
        let found = tokio::task::spawn_blocking(move || match this.ready() {
            Some(renderer) if !renderer.is_stale() => None,
            _ => Some(this.find(root.as_deref())),
        });
        let found = found.await;
        let Some(state) =
            found.unwrap_or_else(|e| Some(PromptState::Missing(format!("loading: {e}").into())))
        else {
            return;
        };
        if let PromptState::Missing(why) = &state {
            if self.ready().is_some() {
                // Files are often replaced one by one.
                tracing::warn!(model = self.model, %why, "changed tokenizer not loaded, the old one stays");
                return;
            }
            if !engine_known {
                tracing::debug!(model = self.model, %why, "no tokenizer yet");
                return;
            }
            let known = self.state.load();
            if !matches!(&**known, PromptState::Missing(known) if known == why) {
                tracing::warn!(model = self.model, %why, "routing by load: no tokenizer");
            }
        }
        self.template.begin_anew();
        self.state.store(Arc::new(state));
        self.loads.fetch_add(1, Ordering::AcqRel);
    }

    fn ready(&self) -> Option<Arc<Renderer>> {
        match &**self.state.load() {
            PromptState::Ready(renderer) => Some(Arc::clone(renderer)),
            _ => None,
        }
    }

    fn find(&self, root: Option<&str>) -> PromptState {
        let located = locate(&self.model, self.staged.as_deref(), root);
        let Located::Found { dir, source } = &located else {
            return PromptState::Missing(located.to_string().into());
        };
        match Renderer::load_with(dir, self.limits, CivilTime::now_utc) {
            Ok(renderer) => {
                let engine = renderer.engine();
                tracing::info!(model = self.model, dir = %dir.display(), ?source, ?engine, "tokenizer loaded");
                if let (Some(staged), true) = (&self.staged, *source != Source::Staged) {
                    tracing::warn!(
                        model = self.model,
                        tokenizer_dir = %staged.display(),
                        dir = %dir.display(),
                        "tokenizer_dir holds no tokenizer of this model: another place's is used"
                    );
                }
                *self.source.lock() = Some(*source);
                if renderer.cache().0 == 0 {
                    tracing::info!(
                        model = self.model,
                        "no token ends a prefix: every prompt is tokenized whole"
                    );
                }
                if let Some(why) = renderer.template_error() {
                    tracing::warn!(model = self.model, why, "chats are routed by load: template");
                }
                PromptState::Ready(Arc::new(renderer))
            }
            Err(error) => PromptState::Missing(error.to_string().into()),
        }
    }
}

/// Whether the last attempt was long ago, or did not know this `root`.
fn is_due(last: Option<&(Instant, Option<String>)>, root: Option<&str>) -> bool {
    last.is_none_or(|(at, for_root)| {
        at.elapsed() >= RETRY || (root.is_some() && for_root.as_deref() != root)
    })
}
