//! A model's chat template: minijinja made to behave as transformers' Jinja2 environment.
//!
//! transformers renders with Jinja2's immutable sandbox, `trim_blocks`, `lstrip_blocks`, loop
//! controls and its own `tojson`, `raise_exception` and `strftime_now`. The differences that are
//! left are listed in the crate's README.

mod detect;
mod filters;
mod generators;
mod methods;
pub(crate) mod python;
mod source;
#[cfg(test)]
mod tests;
mod tojson;
pub(crate) mod value;

use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

pub(crate) use detect::ContentFormat;

use crate::clock::CivilTime;

/// Where templates get the time from.
pub(crate) type Clock = Arc<dyn Fn() -> CivilTime + Send + Sync>;

const NAME: &str = "chat_template";

/// A compiled template.
pub(crate) struct Template {
    env: Environment<'static>,
    source: String,
    pub(crate) content_format: ContentFormat,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template")
            .field("bytes", &self.source.len())
            .field("content_format", &self.content_format)
            .finish_non_exhaustive()
    }
}

impl Template {
    /// Compiles; the error has the line.
    pub(crate) fn compile(source: &str, clock: Clock) -> Result<Self, String> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| describe(&e))?);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_unknown_method_callback(methods::call);
        env.set_formatter(|out, state, value| {
            let own = match value.kind() {
                _ if !matches!(state.auto_escape(), AutoEscape::None) => None,
                ValueKind::Number => python::number_text(value),
                ValueKind::Map | ValueKind::Seq | ValueKind::Iterable => Some(python::text(value)),
                _ => None,
            };
            match own {
                Some(text) => out.write_str(&text).map_err(Error::from),
                None => minijinja::escape_formatter(out, state, value),
            }
        });
        filters::install(&mut env);
        generators::install(&mut env);
        env.add_function("dict", methods::dict);
        env.add_function("raise_exception", |message: Option<Value>| -> Result<Value, Error> {
            let message = message.as_ref().map(python::text).unwrap_or_default();
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        env.add_function("strftime_now", move |format: &str| clock().strftime(format));
        let source = source::normalise_newlines(source);
        env.add_template_owned(NAME, source::rewrite(&source)).map_err(|e| describe(&e))?;
        let content_format = detect::content_format(&source);
        Ok(Self { env, source, content_format })
    }

    /// Whether the source has this text.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.source.contains(text)
    }

    /// Whether a system message may come after others, by the probe with which vLLM 0.32 decides what
    /// to do with those of `/v1/messages`: Jinja2 without what transformers adds to it.
    pub(crate) fn takes_later_system_messages(&self) -> bool {
        if source::has_generation(&self.source) {
            return false;
        }
        let mut env = self.env.clone();
        for name in ["raise_exception", "strftime_now"] {
            env.remove_global(name);
        }
        let message = |role: &str| Value::from_pairs([("role", role), ("content", "t")]);
        let messages: Vec<Value> =
            ["system", "user", "system", "user"].into_iter().map(message).collect();
        let variables = Value::from_pairs([
            ("messages", Value::from(messages)),
            ("add_generation_prompt", Value::from(false)),
        ]);
        env.get_template(NAME).and_then(|template| template.render(variables)).is_ok()
    }

    /// Renders with these variables.
    pub(crate) fn render(&self, variables: Value) -> Result<String, String> {
        self.env
            .get_template(NAME)
            .and_then(|template| template.render(variables))
            .map_err(|e| describe(&e))
    }
}

/// What is wrong and in which line.
fn describe(error: &Error) -> String {
    let mut out = match error.detail() {
        Some(detail) if error.kind() == ErrorKind::InvalidOperation => detail.to_owned(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    if let Some(line) = error.line() {
        out.push_str(&format!(" (template line {line})"));
    }
    out
}
