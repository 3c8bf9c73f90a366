//! Prompts given as token ids, which need no tokenizer.

use crate::completion::{self, Prompt};
use crate::{Api, Limits, Prompts};

/// The prompts of a completions request that gives all of them as token ids; `None` for any other
/// request, and beyond the default [`Limits`].
#[must_use]
pub fn given_ids(api: Api, body: &[u8]) -> Option<Prompts> {
    if api != Api::Completions {
        return None;
    }
    let request = completion::read(body).ok()?;
    let limits = Limits::default();
    let mut bytes = 0;
    let mut prompts = Vec::with_capacity(request.prompts.len().min(limits.prompts));
    for prompt in request.prompts {
        let Prompt::Ids(ids) = prompt else { return None };
        bytes += ids.len() * size_of::<u32>();
        if bytes > limits.prompt_bytes || prompts.len() == limits.prompts {
            return None;
        }
        prompts.push(request.truncation.cut(ids));
    }
    let texts = vec![None; prompts.len()];
    Some(Prompts::exact(prompts, texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(body: &str) -> Option<Vec<Vec<u32>>> {
        given_ids(Api::Completions, body.as_bytes()).map(|given| given.prompts)
    }

    #[test]
    fn only_token_ids_are_given() {
        assert_eq!(ids(r#"{"prompt":[1,2,3]}"#), Some(vec![vec![1, 2, 3]]));
        assert_eq!(ids(r#"{"prompt":[[1],[2,3]]}"#), Some(vec![vec![1], vec![2, 3]]));
        let cut = ids(r#"{"prompt":[1,2,3],"truncate_prompt_tokens":2}"#);
        assert_eq!(cut, Some(vec![vec![2, 3]]));
        for other in [r#"{"prompt":"a"}"#, r#"{"prompt":["a"]}"#, r#"{"prompt":[-1]}"#, "{}", "["] {
            assert_eq!(ids(other), None, "{other}");
        }
        assert_eq!(given_ids(Api::Chat, br#"{"prompt":[1]}"#), None);
    }
}
