//! Token ids that a client gives in a header.
//!
//! A list of unsigned 32-bit numbers between commas, blanks around them allowed; with one bad
//! element, or none at all, it counts as absent, as rolter has it. Several lines are one list
//! (RFC 9110, 5.3). The headers are the gateway's: engines get neither.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use kvasir_fleet::Pool;
use kvasir_prompt::Api;
use tokio::sync::Semaphore;

use crate::parity::counts_the_prompt;

/// Kvasir's own, which wins.
pub(crate) const OWN: HeaderName = HeaderName::from_static("x-kvasir-token-ids");
/// rolter's.
pub(crate) const ROLTER: HeaderName = HeaderName::from_static("x-rolter-vllm-token-ids");
/// Reading this much takes a fraction of a millisecond: not worth a change of threads.
const INLINE_BYTES: usize = 32 << 10;

/// A client's word on the tokens of its prompt.
#[derive(Debug)]
pub(crate) struct Claim {
    pool: Arc<Pool>,
    /// How many tokens it says there are.
    count: u64,
    /// Whether the engine counts the same: not for every API, nor for media and adapters.
    comparable: bool,
}

impl Claim {
    /// The engine's count of the same prompt has come, in a whole answer to the only attempt.
    pub(crate) fn judge(&self, reported: u64) {
        if !self.comparable {
            return;
        }
        self.pool.token_headers().judge(self.pool.model(), self.count, reported);
    }
}

/// Whether there is such a header.
pub(crate) fn is_there(headers: &HeaderMap) -> bool {
    [OWN, ROLTER].iter().any(|name| headers.contains_key(name))
}

/// Reads the header where the pool allows it: the claim, and the ids. `plain` says that the prompt
/// has no media, and is for no adapter.
pub(crate) async fn read(
    pool: &Arc<Pool>,
    permits: &Arc<Semaphore>,
    api: Api,
    plain: bool,
    headers: &HeaderMap,
) -> Option<(Claim, Vec<u32>)> {
    if !pool.token_headers().allowed() || !api.is_generation() {
        return None;
    }
    let name = [OWN, ROLTER].into_iter().find(|name| headers.contains_key(name))?;
    let lines: Vec<_> = headers.get_all(name).iter().cloned().collect();
    let bytes: usize = lines.iter().map(HeaderValue::len).sum();
    let parse = move || ids(lines.iter().map(HeaderValue::as_bytes));
    let ids = if bytes <= INLINE_BYTES {
        parse()
    } else {
        let permit = Arc::clone(permits).acquire_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            parse()
        });
        work.await.ok().flatten()
    };
    let Some(ids) = ids else {
        pool.token_headers().note_malformed();
        return None;
    };
    let (pool, count) = (Arc::clone(pool), ids.len() as u64);
    Some((Claim { pool, count, comparable: plain && counts_the_prompt(api) }, ids))
}

/// The ids of a list; `None` where one is no 32-bit number, or there is none.
fn ids<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u32>> {
    let mut ids = Vec::new();
    for item in lines.flat_map(|line| line.split(|byte| *byte == b',')) {
        let digits = item.trim_ascii();
        // A sign is no digit, though numbers may have one elsewhere.
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        ids.push(std::str::from_utf8(digits).ok()?.parse().ok()?);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_taken_whole_or_not_at_all() {
        let ids = |lines: &[&str]| ids(lines.iter().map(|line| line.as_bytes()));
        assert_eq!(ids(&["1,2,3"]), Some(vec![1, 2, 3]));
        assert_eq!(ids(&[" 1 ,\t2", "4294967295"]), Some(vec![1, 2, u32::MAX]));
        for bad in ["", " ", "1,", ",1", "1,,2", "1 2", "-1", "+1", "1.0", "4294967296", "a", "é"]
        {
            assert_eq!(ids(&[bad]), None, "{bad:?}");
        }
        assert_eq!(ids(&["1,2", ""]), None);
    }
}
