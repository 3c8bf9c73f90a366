//! SGLang's pages of token ids that need more than 32 bits.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use kvasir_kv_hash::sglang::{Chain, Contract, ContractError, EventFormat};

fn chain(version: &str, page_size: usize) -> Chain {
    let contract = Contract::new(version.parse().unwrap(), EventFormat::Default).unwrap();
    contract.chain(page_size).unwrap()
}

/// `hash((a, b))` in `CPython` 3.11, where integers count by their remainder by 2^61 - 1.
#[test]
fn tuple_hashes() {
    for (tokens, hash) in [
        ([2_305_843_009_213_693_951, 0], -8_458_139_203_682_520_985),
        ([2_305_843_009_213_693_952, 5], 173_794_974_761_290_439),
        ([2_305_843_009_213_693_950, 1], 2_885_263_149_902_647_510),
        ([4_611_686_018_427_387_907, 9_223_372_036_854_775_807], 669_240_982_178_544_184),
    ] {
        let mut chain = chain("0.5.3", 2);
        let pages = chain.append_wide(&tokens).unwrap();
        assert_eq!(pages[0].to_i64(), hash, "{tokens:?}");
    }
}

#[test]
fn ids_end_where_signed_ones_do() {
    for version in ["0.5.3", "0.5.23"] {
        let mut chain = chain(version, 1);
        let (last, beyond) = (i64::MAX.cast_unsigned(), 1 << 63);
        assert_eq!(chain.append_wide(&[last]).unwrap().len(), 1);
        let error = chain.append_wide(&[1, beyond]).unwrap_err();
        assert_eq!(error, ContractError::TokenOutOfRange { index: 1, token: beyond });
        assert_eq!(chain.pages().len(), 1, "no token of a refused call is added");
    }
}
