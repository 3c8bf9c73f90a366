//! The smallest router that sends a prompt where its prefix is cached.
//!
//! It follows what replicas store and remove, keyed by the engine's own 64-bit hashes, and picks the
//! replica that holds the longest beginning of a prompt; among equals the one with less to do. Only
//! the transport is left out: `Event` is what a `ZeroMQ` subscriber would decode.
//!
//! `cargo run -p kvasir-kv-hash --example router`

#![allow(clippy::print_stdout, reason = "an example")]

use std::collections::{HashMap, HashSet};

use kvasir_kv_hash::{Engine, Spec, SpecError};

/// What replicas publish.
enum Event {
    Stored { hashes: Vec<u64> },
    Removed { hashes: Vec<u64> },
    Cleared,
}

#[derive(Default)]
struct Replica {
    blocks: HashSet<u64>,
    in_flight: usize,
}

/// All replicas run one model with one configuration.
struct Router {
    spec: Spec<'static>,
    replicas: HashMap<&'static str, Replica>,
}

impl Router {
    fn new(spec: Spec<'static>, names: &[&'static str]) -> Result<Self, SpecError> {
        // A configuration that has no hashes is refused at the start, with the reason.
        spec.blocks()?;
        let replicas = names.iter().map(|&name| (name, Replica::default())).collect();
        Ok(Self { spec, replicas })
    }

    fn apply(&mut self, name: &str, event: Event) {
        let Some(replica) = self.replicas.get_mut(name) else { return };
        match event {
            Event::Stored { hashes } => replica.blocks.extend(hashes),
            Event::Removed { hashes } => {
                for hash in &hashes {
                    replica.blocks.remove(hash);
                }
            }
            Event::Cleared => replica.blocks.clear(),
        }
    }

    /// The replica for a prompt, and how many of its tokens are cached there.
    fn pick(&self, prompt: &[u32]) -> Result<Option<(&'static str, usize)>, SpecError> {
        let mut blocks = self.spec.blocks()?;
        let hashes = blocks.append(prompt);
        let score = |replica: &Replica| {
            // Only an unbroken beginning helps: an engine cannot use blocks behind a hole.
            let cached = hashes.iter().take_while(|hash| replica.blocks.contains(*hash)).count();
            (cached, std::cmp::Reverse(replica.in_flight))
        };
        let best = self.replicas.iter().max_by_key(|(_, replica)| score(replica));
        Ok(best.map(|(&name, replica)| (name, score(replica).0 * self.spec.block_size)))
    }
}

fn main() -> Result<(), SpecError> {
    // vllm serve --block-size 4 --prefix-caching-hash-algo sha256_cbor, with PYTHONHASHSEED=0.
    let spec = Spec {
        engine: Engine::Vllm,
        version: "0.32.0",
        algorithm: "sha256_cbor",
        seed: Some("0"),
        block_size: 4,
    };
    let mut router = Router::new(spec, &["a", "b"])?;
    let system: Vec<u32> = (100..112).collect();

    // Replica b has served the system prompt: these hashes came with its events.
    let mut served = spec.blocks()?;
    let hashes = served.append(&system).to_vec();
    router.apply("b", Event::Stored { hashes: hashes.clone() });

    let prompt = [system.as_slice(), &[7, 8, 9]].concat();
    assert_eq!(router.pick(&prompt)?, Some(("b", 12)));
    println!("12 of {} tokens are cached at b", prompt.len());

    // The last block was evicted; two are left.
    router.apply("b", Event::Removed { hashes: hashes[2..].to_vec() });
    assert_eq!(router.pick(&prompt)?, Some(("b", 8)));

    // Nothing is cached: the idle replica.
    router.apply("b", Event::Cleared);
    if let Some(b) = router.replicas.get_mut("b") {
        b.in_flight = 1;
    }
    assert_eq!(router.pick(&prompt)?, Some(("a", 0)));
    println!("after a reset the prompt goes to a, which is idle");
    Ok(())
}
