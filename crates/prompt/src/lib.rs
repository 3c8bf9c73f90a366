//! OpenAI-style request bodies to the token ids the engine will see.
//!
//! A request body is read twice, each time only as far as needed: [`Envelope::parse`] takes the
//! few top-level fields a gateway acts on straight from the bytes, and [`Renderer::prompts`]
//! turns the prompt or the conversation into token ids the way vLLM 0.32 does it (its request
//! model, its message parsing, the model's chat template, the model's tokenizer). Where that
//! cannot be known, [`Unrouted`] names the reason. [`locate()`] finds a model's tokenizer on the
//! local disk. Nothing here does network I/O, is asynchronous or knows an endpoint.

mod api;
mod chat;
mod clock;
mod completion;
mod cut;
mod edit;
mod envelope;
mod fields;
mod given;
mod harmony;
mod json;
mod locate;
mod media_names;
mod messages;
mod model;
mod multipart;
mod names;
mod pooling;
mod prompts;
mod question;
mod renderer;
mod responses;
mod stamp;
mod template;
mod text;
mod tokenizer;
mod unrouted;
mod work;

pub use api::Api;
pub use clock::CivilTime;
pub use cut::beginning;
pub use edit::{Edit, Marks, MarksError, ObjectText, first_entry};
pub use envelope::{BodyError, Envelope};
pub use given::given_ids;
pub use locate::{Located, Source, Tried, locate};
pub use media_names::names_media;
pub use multipart::model_of_form;
pub use names::{MAX_NAME_BYTES, Name, Names};
pub use prompts::{Level, Limits, Prompts};
pub use question::tokenize_question;
pub use renderer::{LoadError, Quick, Renderer, Rest};
pub use text::{PromptText, prompt_text};
pub use tokenizer::{PrefixCacheStats, TokenizerEngine};
pub use unrouted::Unrouted;
pub use work::Work;
