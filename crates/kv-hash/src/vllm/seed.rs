//! Values of `PYTHONHASHSEED`.

/// Whether `CPython` (3.10 to 3.13) starts with this `PYTHONHASHSEED`.
///
/// It does with an empty value, `random`, and an integer from 0 to 4294967295, which blanks may
/// precede and which may have leading zeros. vLLM hashes the literal text: `"42"`, `" 42"` and
/// `"042"` are three seeds. A value that is refused here can only be a typing error, or was set
/// inside the process after its start.
///
/// ```
/// use kvasir_kv_hash::vllm::python_accepts;
/// assert!(python_accepts("0") && python_accepts("random") && python_accepts(""));
/// assert!(!python_accepts("none") && !python_accepts("4294967296"));
/// ```
#[must_use]
pub fn python_accepts(seed: &str) -> bool {
    if seed.is_empty() || seed == "random" {
        return true;
    }
    // C's strtoul: white space, a sign, digits; a negative number wraps around.
    let text = seed.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    digits.parse::<u64>().is_ok_and(|number| {
        let number = if negative { number.wrapping_neg() } else { number };
        u32::try_from(number).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::python_accepts;

    /// Each was given to `CPython` 3.11.
    #[test]
    fn as_cpython_does() {
        for seed in [
            "0",
            " 42",
            "042",
            "+42",
            "4294967295",
            "\t5",
            "random",
            "00000000000000000000042",
            "",
            "-0",
            "-18446744073709551615",
        ] {
            assert!(python_accepts(seed), "{seed:?}");
        }
        for seed in
            ["-1", "4294967296", "5 ", "0x5", "Random", "+", " ", "1_0", "99999999999999999999"]
        {
            assert!(!python_accepts(seed), "{seed:?}");
        }
    }
}
