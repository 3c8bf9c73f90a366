//! How fast the model is: `cargo run --release -p kvasir-engine-sim --example speed`.

use std::io::{self, Write};
use std::time::Instant;

use kvasir_engine_sim::{Algorithm, Engine, EngineConfig, Hashing, Request, RequestId};

type Error = Box<dyn std::error::Error>;

/// Requests that share a prefix of 1,500 tokens in groups of ten, and have 500 of their own.
fn request(number: u64) -> Request {
    let group = (number / 10 % 40) as u32;
    let shared = (0..1_500).map(|i| group * 10_007 + i);
    let own = (0..500).map(|i| number as u32 * 7_919 + i);
    Request::new(RequestId(number), shared.chain(own).collect(), 128)
}

fn run(out: &mut impl Write, name: &str, config: &EngineConfig, engines: u64) -> Result<(), Error> {
    let requests = 2_000 / engines;
    let mut fleet = Vec::new();
    for _ in 0..engines {
        fleet.push(Engine::new(config.clone())?);
    }
    let start = Instant::now();
    for (index, engine) in (0..).zip(&mut fleet) {
        for number in 0..requests {
            engine.submit(request(index * 131 + number))?;
        }
    }
    let (mut steps, mut tokens, mut events, mut virtual_time) = (0_u64, 0, 0, 0.0);
    let mut busy = true;
    while busy {
        busy = false;
        for engine in &mut fleet {
            if let Some(step) = engine.step() {
                busy = true;
                steps += 1;
                tokens += step.outputs.len();
                events += step.events.len();
                virtual_time += step.duration.as_secs_f64();
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    writeln!(
        out,
        "{name}: {engines} engines, {:.0} steps/s, {:.2} M tokens/s, {:.0} requests/s, {events} events, \
         {:.0} x real time",
        steps as f64 / seconds,
        tokens as f64 / seconds / 1e6,
        (requests * engines) as f64 / seconds,
        virtual_time / seconds,
    )?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let out = &mut io::stdout().lock();
    let opaque = EngineConfig::default();
    run(out, "opaque hashes", &opaque, 1)?;
    run(out, "opaque hashes", &opaque, 500)?;
    let silent = EngineConfig { enable_kv_cache_events: false, ..opaque.clone() };
    run(out, "opaque hashes, no events", &silent, 500)?;
    let hashing = Hashing::of_engine(opaque.version, Algorithm::Sha256Cbor, None)?;
    run(out, "sha256_cbor", &EngineConfig { hashing, ..opaque }, 500)
}
