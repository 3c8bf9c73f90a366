//! The block hashes of one request, grown as its tokens arrive.

use kvasir_kv_hash::vllm::{Chain, ContractError, Digest, MmItem, RequestExtras};
use kvasir_kv_hash::{BlockExtra, BlockKey, Scope};

use crate::block_hash::BlockHash;
use crate::hashing::Hasher;
use crate::request::Request;
use crate::tokens::splitmix64;

/// The hashes of a request's full blocks.
#[derive(Debug)]
pub(crate) struct BlockHashes {
    hashes: Vec<BlockHash>,
    chain: ChainKind,
}

#[derive(Debug)]
enum ChainKind {
    Contract(Box<Chain>),
    Opaque(BlockKey),
}

impl BlockHashes {
    /// An empty chain for the request's adapter, salt and items.
    pub(crate) fn new(
        hasher: &Hasher,
        request: &Request,
        block_size: usize,
    ) -> Result<Self, ContractError> {
        let chain = match hasher {
            Hasher::Contract(contract) => {
                let extras = RequestExtras {
                    lora: request.lora.clone(),
                    cache_salt: request.cache_salt.clone(),
                    items: request.items.clone(),
                    prompt_embeds: None,
                };
                ChainKind::Contract(Box::new(contract.chain_with(block_size, extras)?))
            }
            Hasher::Opaque(space) => ChainKind::Opaque(space.root(&Scope {
                model: "",
                lora: request.lora.as_ref().map(|l| (l.name.as_str(), l.path.as_deref())),
                salt: request.cache_salt.as_deref(),
            })),
        };
        Ok(Self { hashes: Vec::new(), chain })
    }

    /// Hashes the blocks that `tokens`, the request's tokens so far, fill.
    pub(crate) fn extend(
        &mut self,
        hasher: &Hasher,
        tokens: &[u32],
        items: &[MmItem],
        block_size: usize,
    ) {
        let full = tokens.len() / block_size * block_size;
        let done = self.hashes.len() * block_size;
        let Some(new) = tokens.get(done..full).filter(|new| !new.is_empty()) else { return };
        match (&mut self.chain, hasher) {
            (ChainKind::Contract(chain), _) => {
                self.hashes.extend(chain.append(new).iter().map(from_digest));
            }
            (ChainKind::Opaque(parent), Hasher::Opaque(space)) => {
                let mut scratch = Vec::with_capacity(32 + block_size * 4);
                let mut extras = Vec::new();
                for (index, block) in new.chunks_exact(block_size).enumerate() {
                    extras.clear();
                    let start = done + index * block_size;
                    extras.extend(overlapping(items, start, block_size).map(|(item, offset)| {
                        BlockExtra { identity: item.identifier.as_bytes(), offset }
                    }));
                    *parent = space.next_with(&mut scratch, *parent, block, &extras);
                    self.hashes.push(from_key(*parent));
                }
            }
            // A request is hashed by the engine's hasher of the life it was submitted in.
            (ChainKind::Opaque(_), Hasher::Contract(_)) => {}
        }
    }

    pub(crate) fn as_slice(&self) -> &[BlockHash] {
        &self.hashes
    }
}

/// The items that overlap the block at `start`, with their offset from it.
pub(crate) fn overlapping(
    items: &[MmItem],
    start: usize,
    block_size: usize,
) -> impl Iterator<Item = (&MmItem, i64)> {
    let end = start + block_size;
    items
        .iter()
        .filter(move |item| item.offset < end && item.offset.saturating_add(item.length) > start)
        .map(move |item| (item, item.offset as i64 - start as i64))
}

fn from_digest(digest: &Digest) -> BlockHash {
    let mut bytes = [0; BlockHash::LEN];
    let digest = digest.as_bytes();
    let length = digest.len().min(BlockHash::LEN);
    bytes[BlockHash::LEN - length..].copy_from_slice(&digest[digest.len() - length..]);
    BlockHash::new(bytes)
}

/// A key as a hash: filler made of the key, then the key.
fn from_key(key: BlockKey) -> BlockHash {
    let mut bytes = [0; BlockHash::LEN];
    let mut filler = key.0;
    for chunk in bytes.chunks_exact_mut(8) {
        filler = splitmix64(filler);
        chunk.copy_from_slice(&filler.to_be_bytes());
    }
    bytes[BlockHash::LEN - 8..].copy_from_slice(&key.0.to_be_bytes());
    BlockHash::new(bytes)
}
