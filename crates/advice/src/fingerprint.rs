//! What a calibration was measured on, as one short word: whether it still is that.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// The first 16 hexadecimal digits of SHA-256 over `key=value` lines in the order of their keys, joined by
/// line feeds, without one at the end.
#[must_use]
pub fn fingerprint(fields: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let digest = Sha256::digest(lines.join("\n").as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'block_size=16\ngpu_sku=L4\nnum_gpu_blocks=8192' | sha256sum | cut -c1-16`
    #[test]
    fn it_is_sha256_of_sorted_lines() {
        let fields = [("num_gpu_blocks", "8192"), ("gpu_sku", "L4"), ("block_size", "16")];
        let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(fingerprint(&fields), "509d4cfaa92f5ea5");
    }
}
