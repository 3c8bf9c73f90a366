//! Prompts given as token ids, which need no tokenizer.

use crate::completion::{self, Prompt};
use crate::{Api, Limits, Prompts};

/// The prompts of a completions request that gives all of them as token ids; `None` for any other
/// request, and for more prompts than `limits` allow. Of more ids than those, only the head is kept.
#[must_use]
pub fn given_ids(api: Api, body: &[u8], limits: Limits) -> Option<Prompts> {
    if api != Api::Completions {
        return None;
    }
    let request = completion::read(body).ok()?;
    let is_given = request.prompts.iter().all(|prompt| matches!(prompt, Prompt::Ids(_)));
    if !is_given || request.prompts.len() > limits.prompts {
        return None;
    }
    let bytes: usize = request.prompts.iter().map(Prompt::size).sum();
    let is_over = bytes > limits.prompt_bytes;
    let mut room = if is_over { limits.prompt_bytes / size_of::<u32>() } else { usize::MAX };
    let (mut prompts, mut count) = (Vec::with_capacity(request.prompts.len()), 0);
    for prompt in request.prompts {
        let Prompt::Ids(ids) = prompt else { return None };
        let mut ids = request.truncation.cut(ids);
        count += ids.len() as u64;
        ids.truncate(room);
        room -= ids.len();
        prompts.push(ids);
    }
    let texts = vec![None; prompts.len()];
    Some(match is_over {
        true => Prompts::heads(prompts, texts, count, (bytes, limits.prompt_bytes)),
        false => Prompts::exact(prompts, texts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unrouted;

    fn ids(body: &str) -> Option<Vec<Vec<u32>>> {
        given_ids(Api::Completions, body.as_bytes(), Limits::default()).map(|given| given.prompts)
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
        assert_eq!(given_ids(Api::Chat, br#"{"prompt":[1]}"#, Limits::default()), None);
    }

    #[test]
    fn of_too_many_ids_the_head_is_kept() {
        let limits = Limits { prompt_bytes: 16, prompts: 2, ..Limits::default() };
        let given = |body: &str| given_ids(Api::Completions, body.as_bytes(), limits);
        assert_eq!(given(r#"{"prompt":[1,2,3,4]}"#).unwrap().why, None);
        let head = given(r#"{"prompt":[[1,2,3],[4,5,6]]}"#).unwrap();
        assert_eq!((head.prompts, head.tokens), (vec![vec![1, 2, 3], vec![4]], 6));
        assert_eq!(head.why, Some(Unrouted::Head { bytes: 24, limit: 16 }));
        assert_eq!(given(r#"{"prompt":[[1],[2],[3]]}"#), None);
    }
}
