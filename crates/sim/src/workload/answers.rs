//! What simulated engines answer: the tokens by which later prompts quote the answer.

use kvasir_engine_sim::{NextToken, TokenRequest, TokenSource};

use super::{Segment, answer_id};

/// Answers a request with the segment named after its number, whatever attempt and leg it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers;

impl TokenSource for Answers {
    fn next_token(&mut self, request: &TokenRequest<'_>) -> NextToken {
        let id = answer_id(request.id.0 & u64::from(u32::MAX));
        NextToken::Token(Segment::token(id, request.output.len() as u64))
    }
}
