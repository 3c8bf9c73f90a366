//! What takes about a millisecond at most, and can be done where other requests wait for it: bodies that
//! are small, and chats of which the prefix cache knows all but a little.

#[cfg(test)]
mod tests;

use super::{Renderer, chat, shapes};
use crate::fields::Truncation;
use crate::model::RenderedBy;
use crate::{Api, Prompts, Unrouted};

/// Bodies up to this size are tokenized whatever is in them.
const SMALL_BODY: usize = 2 << 10;
/// Larger ones, or chats of more messages, are not even parsed and rendered.
const LARGEST_BODY: usize = 32 << 10;
const MOST_MESSAGES: usize = 64;

/// What [`Renderer::quickly`] came to.
#[derive(Debug)]
pub enum Quick {
    /// All of it.
    Done(Result<Prompts, Unrouted>),
    /// It would take too long: [`Renderer::the_rest`] goes on.
    Rest(Rest),
}

/// What is left to do of a request.
#[derive(Debug)]
pub struct Rest(Option<Rendered>);

/// A chat's text, of which too much has to be tokenized.
#[derive(Debug)]
struct Rendered {
    text: String,
    special: bool,
    cut: Truncation,
}

impl Renderer {
    /// [`Renderer::prompts_salted`], as far as it takes about a millisecond at most.
    #[must_use]
    pub fn quickly(&self, api: Api, body: &[u8], salt: Option<&str>) -> Quick {
        if body.len() <= SMALL_BODY {
            return Quick::Done(self.prompts_salted(api, body, salt));
        }
        let has_template = self.rendered_by != RenderedBy::Harmony;
        if api != Api::Chat || body.len() > LARGEST_BODY || !has_template {
            return Quick::Rest(Rest(None));
        }
        match self.quick_chat(body, salt) {
            Ok(Ok(prompts)) => Quick::Done(Ok(self.as_rendered(prompts))),
            Ok(Err(rest)) => Quick::Rest(rest),
            Err(why) => Quick::Done(Err(why)),
        }
    }

    /// Does what [`Renderer::quickly`] left of this request.
    ///
    /// # Errors
    /// The reason why the ids cannot be known.
    pub fn the_rest(
        &self,
        rest: Rest,
        api: Api,
        body: &[u8],
        salt: Option<&str>,
    ) -> Result<Prompts, Unrouted> {
        let Rest(Some(Rendered { text, special, cut })) = rest else {
            return self.prompts_salted(api, body, salt);
        };
        let ids = self.encode(&text, special, cut, salt)?;
        Ok(self.as_rendered(Prompts::exact(vec![ids], vec![Some(text)])))
    }

    fn quick_chat(
        &self,
        body: &[u8],
        salt: Option<&str>,
    ) -> Result<Result<Prompts, Rest>, Unrouted> {
        let request = self.clocks.parse.time(|| chat::read(body))?;
        if request.messages.len() > MOST_MESSAGES || shapes::has_media(&request.messages) {
            return Ok(Err(Rest(None)));
        }
        let (special, cut) = (request.add_special_tokens, request.truncation);
        let (text, media) = self.clocks.render.time(|| self.render(request))?;
        if media.is_some() || text.len() > self.limits.prompt_bytes {
            return Ok(Err(Rest(None)));
        }
        let most = self.tokenizer.quick_bytes();
        let within = || self.tokenizer.encode_within(&text, special, cut, salt, most);
        match self.clocks.tokenize.time(within).map_err(Unrouted::Tokenizer)? {
            Some(ids) => Ok(Ok(Prompts::exact(vec![ids], vec![Some(text)]))),
            None => Ok(Err(Rest(Some(Rendered { text, special, cut })))),
        }
    }
}
