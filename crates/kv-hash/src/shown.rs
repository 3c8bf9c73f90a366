//! Foreign text in error messages.

/// Cuts text to a length that keeps logs readable.
pub(crate) fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    let mut chars = text.chars();
    let mut out: String = chars.by_ref().take(MAX_CHARS).collect();
    if chars.next().is_some() {
        out.push('…');
    }
    out
}
