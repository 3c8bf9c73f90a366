//! Where generated tokens come from.

use crate::request::RequestId;

/// What a [`TokenSource`] is told.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// The request.
    pub id: RequestId,
    /// Its prompt.
    pub prompt: &'a [u32],
    /// What it has generated so far.
    pub output: &'a [u32],
    /// A number made of the prompt's tokens alone: equal in all engines.
    pub seed: u64,
}

/// The next token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextToken {
    /// A token to go on from.
    Token(u32),
    /// A token that ends the request; one like any other if the request ignores them.
    Stop(u32),
}

/// Stands in for the model: says what it generates. Closures are sources.
pub trait TokenSource: Send {
    /// The token after `request.output`. Must depend on nothing but its argument and the
    /// source's own state, or the engine is not deterministic.
    fn next_token(&mut self, request: &TokenRequest<'_>) -> NextToken;
}

impl<F: FnMut(&TokenRequest<'_>) -> NextToken + Send> TokenSource for F {
    fn next_token(&mut self, request: &TokenRequest<'_>) -> NextToken {
        self(request)
    }
}

/// Noise that is the same for the same prompt in every engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoRandom {
    /// Tokens are below this number.
    pub vocabulary: u32,
    /// On average one of so many tokens ends a request; 0 means none ever does.
    pub stop_one_in: u32,
}

impl Default for PseudoRandom {
    /// 32,000 tokens, and requests end at `max_tokens`.
    fn default() -> Self {
        Self { vocabulary: 32_000, stop_one_in: 0 }
    }
}

impl TokenSource for PseudoRandom {
    fn next_token(&mut self, request: &TokenRequest<'_>) -> NextToken {
        let noise = splitmix64(request.seed ^ splitmix64(request.output.len() as u64));
        let token = (noise >> 32) as u32 % self.vocabulary.max(1);
        match (noise as u32).checked_rem(self.stop_one_in) {
            Some(0) => NextToken::Stop(token),
            _ => NextToken::Token(token),
        }
    }
}

/// The finaliser of `SplitMix64`: a cheap mixing of 64 bits.
pub(crate) fn splitmix64(value: u64) -> u64 {
    let x = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number made of tokens, order included.
pub(crate) fn seed_of(tokens: &[u32]) -> u64 {
    tokens.iter().fold(tokens.len() as u64, |seed, &token| {
        (seed ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(source: &mut PseudoRandom, prompt: &[u32], count: usize) -> Vec<NextToken> {
        let mut output = Vec::new();
        let seed = seed_of(prompt);
        (0..count)
            .map(|_| {
                let request = TokenRequest { id: RequestId(1), prompt, output: &output, seed };
                let next = source.next_token(&request);
                let (NextToken::Token(token) | NextToken::Stop(token)) = next;
                output.push(token);
                next
            })
            .collect()
    }

    #[test]
    fn noise_depends_on_the_prompt_and_nothing_else() {
        let mut source = PseudoRandom::default();
        let first = take(&mut source, &[1, 2, 3], 50);
        assert_eq!(first, take(&mut source, &[1, 2, 3], 50));
        assert_ne!(first, take(&mut source, &[1, 3, 2], 50));
        assert!(first.iter().all(|t| matches!(t, NextToken::Token(t) if *t < 32_000)));
    }

    #[test]
    fn stops_come_about_as_often_as_asked() {
        let mut source = PseudoRandom { vocabulary: 100, stop_one_in: 10 };
        let tokens = take(&mut source, &[7], 2_000);
        let stops = tokens.iter().filter(|t| matches!(t, NextToken::Stop(_))).count();
        assert!((140..260).contains(&stops), "{stops}");
    }
}
