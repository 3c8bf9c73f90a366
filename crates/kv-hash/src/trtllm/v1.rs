//! `v1_block_key`: 64-bit integer mixing.

const MIX_32: u32 = 0x045d_9f3b;
const MIX_64: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
const COMBINE: u32 = 0x9e37_79b9;
const PARENT: u64 = 0xbf58_476d_1ce4_e5b9;

#[inline]
fn mix32(value: u32, seed: u64) -> u64 {
    let value = ((value >> 16) ^ value).wrapping_mul(MIX_32);
    let value = ((value >> 16) ^ value).wrapping_mul(MIX_32);
    let value = ((value >> 16) ^ value).wrapping_add(COMBINE);
    combine(value.into(), seed)
}

#[inline]
fn mix64(value: u64, seed: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(MIX_64[0]);
    let value = (value ^ (value >> 27)).wrapping_mul(MIX_64[1]);
    let value = (value ^ (value >> 31)).wrapping_add(COMBINE.into());
    combine(value, seed)
}

#[inline]
fn combine(value: u64, seed: u64) -> u64 {
    seed ^ value.wrapping_add(seed << 6).wrapping_add(seed >> 2)
}

/// A multimodal item in a block, as events carry it in `mm_keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmKey {
    /// The item's content hash.
    pub hash: [u8; 32],
    /// How many of the item's tokens lie before this block.
    pub start_offset: u64,
}

/// One block of the first cache manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V1Block<'a> {
    /// The block's tokens; their number is hashed too, so a partial block has a hash of its own.
    pub tokens: &'a [u32],
    /// `token_extra_id` of each token, where the request uses them (prompt tables). Tokens without
    /// one here hash as if they had 0.
    pub extra_ids: Option<&'a [u64]>,
    /// The adapter's `lora_task_id`.
    pub lora_task_id: Option<u64>,
    /// The salt's id, which only the first block of a request hashes: see
    /// [`salt_id`](super::salt_id).
    pub salt_id: Option<u64>,
    /// The multimodal items in the block.
    pub mm_keys: &'a [MmKey],
}

/// The `v1_block_key` hash of the block after `parent`; the parent of a first block is 0.
#[must_use]
pub fn v1_block_key(parent: u64, block: &V1Block<'_>) -> u64 {
    let mut seed = block.tokens.len() as u64 ^ parent.wrapping_mul(PARENT);
    if parent == 0
        && let Some(id) = block.salt_id
    {
        seed = mix64(id, seed);
    }
    match block.extra_ids {
        None => seed = block.tokens.iter().fold(seed, |seed, &token| mix32(token, seed)),
        Some(ids) => {
            let ids = ids.iter().copied().chain(std::iter::repeat(0));
            for (&token, id) in block.tokens.iter().zip(ids) {
                seed = mix64(id, mix32(token, seed));
            }
        }
    }
    if let Some(id) = block.lora_task_id {
        seed = mix64(id, seed);
    }
    for key in block.mm_keys {
        for word in key.hash.as_chunks::<4>().0 {
            seed = mix32(u32::from_le_bytes(*word), seed);
        }
        seed = mix64(key.start_offset, seed);
    }
    seed
}
