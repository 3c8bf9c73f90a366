use std::time::Duration;

use kvasir_engine_sim::server::{EngineKind, PdConfig, PdRole, TransferFailure};

use super::*;

fn parse(line: &str) -> Result<Args, String> {
    Args::try_parse_from(line.split(' ')).map_err(|error| error.to_string())
}

fn demo(line: &str) -> DemoArgs {
    match parse(line).map(|args| args.command) {
        Ok(Command::Demo(args)) => args,
        other => panic!("{other:?}"),
    }
}

fn sim_engine(line: &str) -> SimEngineArgs {
    match parse(line).map(|args| args.command) {
        Ok(Command::SimEngine(args)) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_demo_needs_nothing() {
    let args = demo("kvasirctl demo");
    assert_eq!((args.seconds, args.seed, args.engines), (40, 1, 4));
    assert_eq!(args.policies, [PolicyKind::RoundRobin, PolicyKind::Latency]);
    assert!(!args.json && !args.hold);
    let args = demo("kvasirctl demo --policies least_load,precise_cache_aware,latency --json");
    assert_eq!(args.policies.len(), 3);
}

#[test]
fn what_cannot_be_is_said_clearly() {
    let engine = "kvasirctl sim-engine --port 1";
    for (line, part) in [
        ("kvasirctl demo --seconds 1", "2..=3600"),
        ("kvasirctl routing set m --slo-latency-ms -3", "must be above 0"),
        ("kvasirctl demo --seconds 3601", "2..=3600"),
        ("kvasirctl demo --seconds soon", "--seconds"),
        ("kvasirctl demo --engines 0", "1..=16"),
        ("kvasirctl demo --engines 17", "1..=16"),
        ("kvasirctl demo --seed -1", "-1"),
        (
            "kvasirctl demo --policies fastest",
            "unknown policy `fastest`, expected one of `latency`",
        ),
        ("kvasirctl demo --policies=", "unknown policy ``"),
        ("kvasirctl sim-engine", "--port"),
        ("kvasirctl sim-engine --port 65536", "65536"),
        (&format!("{engine} --host nowhere"), "--host"),
        (&format!("{engine} --events 127.0.0.1:1"), "expected tcp://HOST:PORT"),
        (&format!("{engine} --events tcp://"), "expected tcp://HOST:PORT"),
        (&format!("{engine} --replay tcp://127.0.0.1:1"), "--events"),
        (&format!("{engine} --engine-version new"), "--engine-version"),
        (&format!("{engine} --algo md5"), "--algo"),
        (&format!("{engine} --int-hashes maybe"), "--int-hashes"),
        (&format!("{engine} --speed 0"), "must be from 0.001"),
        (&format!("{engine} --speed NaN"), "must be from 0.001"),
        (&format!("{engine} --ranks 0"), "1..=64"),
        (&format!("{engine} --kind llama"), "expected vllm, sglang or trtllm"),
        (&format!("{engine} --pd-role all"), "expected prefill, decode or both"),
        (&format!("{engine} --pd-lease-ms 5"), "--pd-role"),
        (&format!("{engine} --pd-role both --pd-transfer-tokens-per-s 0"), "0 is not in"),
        (&format!("{engine} --pd-role both --pd-on-failure hope"), "expected fail or recompute"),
        (&format!("{engine} --lora a"), "expected NAME=PATH"),
        (&format!("{engine} --lora =b"), "expected NAME=PATH"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[test]
fn a_simulated_engine_takes_everything() {
    let line = "kvasirctl sim-engine --port 0 --host 0.0.0.0 --events tcp://*:5557 \
                --replay tcp://*:5558 --model m --tokenizer /t --block-size 32 --blocks 100 \
                --engine-version 0.26.1+cu129 --int-hashes false --algo xxhash --seed random \
                --ranks 2 --speed 2.5 --lora a=/a=b --lora b=/b --no-report-cached-tokens \
                --faults --topic kv";
    let args = sim_engine(line);
    assert_eq!((args.port, args.host.to_string().as_str()), (0, "0.0.0.0"));
    assert_eq!(args.events.as_deref(), Some("tcp://*:5557"));
    assert_eq!(args.replay.as_deref(), Some("tcp://*:5558"));
    assert_eq!((args.block_size, args.blocks, args.ranks), (Some(32), Some(100), 2));
    assert_eq!(args.engine_version.text, "0.26.1+cu129");
    assert_eq!(args.engine_version.release, Version::release(0, 26, 1));
    assert_eq!((args.int_hashes, args.algo), (false, Algorithm::Xxhash));
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(args.lora, [pair("a", "/a=b"), pair("b", "/b")]);
    assert!(args.no_report_cached_tokens && args.faults);
    let line = "kvasirctl sim-engine --port 0 --kind sglang --pd-role decode --pd-lease-ms 100 \
                --pd-transfer-ms 7 --pd-transfer-tokens-per-s 1000 --pd-on-failure recompute \
                --pd-failure-delay-ms 3 --pd-rendezvous-ms 50";
    let pd = sim_engine(line).pd;
    assert_eq!(pd.kind, EngineKind::Sglang);
    let config = PdConfig {
        role: Some(PdRole::Decode),
        lease: Duration::from_millis(100),
        transfer_time: Duration::from_millis(7),
        transfer_rate: 1_000.0,
        on_failure: TransferFailure::Recompute,
        failure_delay: Duration::from_millis(3),
        rendezvous: Duration::from_millis(50),
    };
    assert_eq!(pd.config(), config);
    let plain = sim_engine("kvasirctl sim-engine --port 8000");
    assert_eq!((plain.pd.kind, plain.pd.config()), (EngineKind::Vllm, PdConfig::default()));
    assert_eq!((plain.events, plain.replay), (None, None));
    assert_eq!(plain.engine_version.release, Version::release(0, 32, 0));
}
