//! Kvasir's own block identity.
//!
//! `key(i) = xxh3_64(secret, key(i-1), extras of block i, tokens of block i)`. The root of a chain
//! covers what separates caches that share tokens: the base model, the LoRA adapter and the cache
//! salt. The secret is random per process, so that no tenant can forge two prompts with one key.

use std::fmt;

use crate::xxh3;

/// Kvasir's 64-bit chained identity of one full block of tokens and everything before it.
///
/// Equal keys mean equal token prefixes under one [`Scope`]; keys of different [`KeySpace`]s are
/// unrelated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey(pub u64);

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockKey({:016x})", self.0)
    }
}

/// What separates caches that hold the same tokens: it seeds the first block's parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The base model, as the engine's pool names it.
    pub model: &'a str,
    /// The LoRA adapter: its name and, where known, the path it was loaded from.
    pub lora: Option<(&'a str, Option<&'a str>)>,
    /// The request's `cache_salt`; an empty string is no salt, as in vLLM.
    pub salt: Option<&'a str>,
}

/// A non-token input of one block: the identity of an image, audio clip or embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExtra<'a> {
    /// The item's identity (a content hash or the client's identifier).
    pub identity: &'a [u8],
    /// Where the item starts, relative to the block's first token; may be negative.
    pub offset: i64,
}

/// A keyed space of [`BlockKey`]s.
#[derive(Clone)]
pub struct KeySpace {
    secret: Box<[u8; KeySpace::SECRET_LEN]>,
    /// Words of the secret, made odd.
    words: [u64; 4],
}

impl fmt::Debug for KeySpace {
    /// Never prints the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySpace")
    }
}

impl KeySpace {
    /// Bytes of secret a space needs.
    pub const SECRET_LEN: usize = 192;

    /// A space keyed by `secret`, which should come from the operating system's randomness.
    #[must_use]
    pub fn new(secret: [u8; Self::SECRET_LEN]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(secret.as_chunks::<8>().0.iter().skip(8)) {
            *word = u64::from_le_bytes(*bytes) | 1;
        }
        Self { secret: Box::new(secret), words }
    }

    /// The same space in every process: for tests, replay logs and snapshots only.
    #[must_use]
    pub fn fixed() -> Self {
        let mut secret = [0u8; Self::SECRET_LEN];
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for byte in &mut secret {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *byte = x.to_le_bytes()[3];
        }
        Self::new(secret)
    }

    /// The parent of a chain's first block.
    #[must_use]
    pub fn root(&self, scope: &Scope<'_>) -> BlockKey {
        let mut buf = Vec::with_capacity(128);
        put_part(&mut buf, Some(scope.model.as_bytes()));
        put_part(&mut buf, scope.lora.map(|(name, _)| name.as_bytes()));
        put_part(&mut buf, scope.lora.and_then(|(_, path)| path).map(str::as_bytes));
        put_part(&mut buf, scope.salt.filter(|s| !s.is_empty()).map(str::as_bytes));
        self.digest(&buf)
    }

    /// The key of a full block: its tokens, what else identifies it, and its parent.
    #[must_use]
    pub fn next(&self, parent: BlockKey, tokens: &[u32], extras: &[BlockExtra<'_>]) -> BlockKey {
        self.next_with(&mut Vec::with_capacity(16 + tokens.len() * 4), parent, tokens, extras)
    }

    /// [`next`](Self::next) with the caller's buffer, whose content is overwritten: a loop that
    /// passes the same one allocates nothing per block.
    #[must_use]
    pub fn next_with(
        &self,
        scratch: &mut Vec<u8>,
        parent: BlockKey,
        tokens: &[u32],
        extras: &[BlockExtra<'_>],
    ) -> BlockKey {
        scratch.clear();
        scratch.extend_from_slice(&parent.0.to_le_bytes());
        // The count first: no pair of (extras, tokens) can spell another pair's bytes.
        scratch.extend_from_slice(&(extras.len() as u64).to_le_bytes());
        for extra in extras {
            put_part(scratch, Some(extra.identity));
            scratch.extend_from_slice(&extra.offset.to_le_bytes());
        }
        let start = scratch.len();
        scratch.resize(start + tokens.len() * 4, 0);
        put_tokens(&mut scratch[start..], tokens);
        self.digest(scratch)
    }

    /// The key of a block that is known by the engine's own hash of it instead of by its tokens.
    ///
    /// The engine's hash is a digest already, so two secret multiplications are enough to chain it:
    /// who does not know the secret cannot choose two chains that meet, and who makes two prompts
    /// with one digest has deceived the engine itself.
    #[must_use]
    pub fn next_by_hash(&self, parent: BlockKey, hash: u64) -> BlockKey {
        let [a, b, c, d] = self.words;
        let once = fold(parent.0 ^ a, hash ^ b);
        BlockKey(fold(once ^ hash.rotate_left(32) ^ c, parent.0 ^ d))
    }

    /// The keys of the full blocks of `tokens`, in order; a trailing partial block has none.
    ///
    /// A `block_size` of 0 has no blocks.
    #[must_use]
    pub fn chain(&self, root: BlockKey, tokens: &[u32], block_size: usize) -> Vec<BlockKey> {
        if block_size == 0 {
            return Vec::new();
        }
        // What [`next_with`](Self::next_with) makes of blocks without extras, in place.
        let mut buf = vec![0; 16 + block_size * 4];
        let mut keys = Vec::with_capacity(tokens.len() / block_size);
        let mut parent = root;
        for block in tokens.chunks_exact(block_size) {
            let (head, words) = buf.split_at_mut(16);
            head[..8].copy_from_slice(&parent.0.to_le_bytes());
            put_tokens(words, block);
            parent = self.digest(&buf);
            keys.push(parent);
        }
        keys
    }

    fn digest(&self, bytes: &[u8]) -> BlockKey {
        BlockKey(xxh3::digest(&self.secret, bytes))
    }
}

/// The two halves of the full product, folded.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Tokens as their bytes, four each.
fn put_tokens(words: &mut [u8], tokens: &[u32]) {
    for (word, token) in words.as_chunks_mut().0.iter_mut().zip(tokens) {
        *word = token.to_le_bytes();
    }
}

/// Appends a length-prefixed part, so that neighbours cannot run into each other.
fn put_part(buf: &mut Vec<u8>, part: Option<&[u8]>) {
    match part {
        None => buf.push(0),
        Some(bytes) => {
            buf.push(1);
            buf.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            buf.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_equals_step_by_step_and_drops_the_partial_tail() {
        let space = KeySpace::fixed();
        let root = space.root(&Scope { model: "m", ..Scope::default() });
        let tokens: Vec<u32> = (0..37).collect();
        let keys = space.chain(root, &tokens, 16);
        let first = space.next(root, &tokens[..16], &[]);
        let second = space.next(first, &tokens[16..32], &[]);
        assert_eq!(keys, [first, second]);
        let mut scratch = vec![9; 500];
        assert_eq!(space.next_with(&mut scratch, first, &tokens[16..32], &[]), second);
        assert!(space.chain(root, &tokens, 0).is_empty());
    }

    #[test]
    fn every_part_of_the_scope_separates() {
        let space = KeySpace::fixed();
        let base = Scope { model: "m", lora: None, salt: None };
        let scopes = [
            base,
            Scope { model: "n", ..base },
            Scope { lora: Some(("a", None)), ..base },
            Scope { lora: Some(("a", Some("p"))), ..base },
            Scope { lora: Some(("ap", None)), ..base },
            Scope { salt: Some("a"), ..base },
            Scope { lora: Some(("a", None)), salt: Some("a"), ..base },
        ];
        for (i, a) in scopes.iter().enumerate() {
            for b in &scopes[i + 1..] {
                assert_ne!(space.root(a), space.root(b), "{a:?} {b:?}");
            }
        }
        assert_eq!(space.root(&base), space.root(&Scope { salt: Some(""), ..base }));
    }

    #[test]
    fn blocks_by_hash_are_chained_too() {
        let space = KeySpace::fixed();
        let root = space.root(&Scope { model: "m", ..Scope::default() });
        let first = space.next_by_hash(root, 7);
        assert_ne!(first, space.next_by_hash(root, 8));
        assert_ne!(space.next_by_hash(first, 7), first);
        assert_ne!(first, space.next(root, &[7, 0], &[]));
        let other = KeySpace::new([7; KeySpace::SECRET_LEN]);
        assert_ne!(first, other.next_by_hash(root, 7));
        // Parents and hashes that differ in one bit, or change places, give keys that do not.
        let near = |n: u64| (0..64).map(move |bit| n ^ 1 << bit);
        let mut keys: Vec<u64> = near(root.0)
            .flat_map(|parent| near(7).map(move |hash| (parent, hash)))
            .flat_map(|(a, b)| [(a, b), (b, a)])
            .map(|(parent, hash)| space.next_by_hash(BlockKey(parent), hash).0)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 2 * 64 * 64);
        let ones: u32 = keys.iter().map(|key| key.count_ones()).sum();
        assert!(ones.abs_diff(32 * 2 * 64 * 64) < 4_000, "{ones}");
    }

    #[test]
    fn extras_and_secret_separate() {
        let space = KeySpace::fixed();
        let root = space.root(&Scope::default());
        let image = BlockExtra { identity: b"img", offset: 3 };
        let plain = space.next(root, &[1, 2], &[]);
        assert_ne!(plain, space.next(root, &[1, 2], &[image]));
        assert_ne!(
            space.next(root, &[1, 2], &[image]),
            space.next(root, &[1, 2], &[BlockExtra { offset: -3, ..image }])
        );
        let other = KeySpace::new([7; KeySpace::SECRET_LEN]);
        assert_ne!(plain, other.next(other.root(&Scope::default()), &[1, 2], &[]));
    }
}
