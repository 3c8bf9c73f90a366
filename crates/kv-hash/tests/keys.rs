//! Kvasir's own keys, pinned: what was written down under [`KeySpace::fixed`] can be read later.

use kvasir_kv_hash::{BlockExtra, BlockKey, KeySpace, Scope};

/// From the two formulas, computed apart from this code (Python integers): xorshift bytes for the
/// secret, two folded products for the key.
#[test]
fn keys_by_hash_of_the_fixed_space() {
    let space = KeySpace::fixed();
    for (parent, hash, key) in [
        (0, 0, 0xec02_361c_af75_4dd8),
        (1, 0, 0xc379_ed9c_48f6_6e62),
        (0, 1, 0x5d2c_a11a_4391_11cd),
        (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x483c_4b9e_f75e_c558),
        (u64::MAX, u64::MAX, 0xc900_f25b_e312_3870),
    ] {
        let found = space.next_by_hash(BlockKey(parent), hash);
        assert_eq!(found, BlockKey(key), "{parent:x} {hash:x} {found:?}");
    }
}

/// As first computed: a change here makes every snapshot and replay log unreadable.
#[test]
fn keys_by_tokens_of_the_fixed_space() {
    let space = KeySpace::fixed();
    let scope = Scope { model: "m", lora: Some(("a", Some("p"))), salt: Some("s") };
    let roots = [space.root(&Scope::default()), space.root(&scope)];
    let image = BlockExtra { identity: b"image", offset: -3 };
    let keys = [
        space.next(roots[0], &[1, 2, 3, u32::MAX], &[]),
        space.next(roots[1], &[1, 2, 3, u32::MAX], &[image]),
    ];
    assert_eq!(
        [roots[0], roots[1], keys[0], keys[1]].map(|key| key.0),
        [
            14_758_752_597_179_690_136,
            5_284_721_677_087_441_035,
            11_494_693_916_939_961_113,
            14_493_822_179_839_248_184,
        ],
    );
}
