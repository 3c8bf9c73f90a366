//! `kvasirctl simulate` through the real binary: its forms of output, and what it says of bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::path::PathBuf;
use std::process::{Command, Output};

fn simulate(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasirctl"));
    command.arg("simulate").args(args.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn json_csv_table_and_plot_are_the_same_every_time() {
    let svg = scratch("simulate.svg");
    let common = "--workload hot_prefix --requests 30 --replicas 2 --policies latency,lmetric";
    let json = simulate(&format!("{common} --json --plot {}", svg.display()));
    assert!(json.status.success(), "{}", text(&json.stderr));
    // No terminal, no progress.
    assert_eq!(text(&json.stderr), "");
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(value["policies"]["latency"]["ttft_ms"]["p99"].as_f64().unwrap() > 0.0);
    assert_eq!(value["policies"]["lmetric"]["answered"], 30);
    let first = std::fs::read_to_string(&svg).unwrap();
    assert!(first.starts_with("<svg "));
    let again = simulate(&format!("{common} --json --plot {}", svg.display()));
    assert_eq!(again.stdout, json.stdout);
    assert_eq!(std::fs::read_to_string(&svg).unwrap(), first);
    let csv = text(&simulate(&format!("{common} --csv")).stdout);
    assert!(csv.starts_with("policy,token_hit_rate,") && csv.lines().count() == 3, "{csv}");
    let table = text(&simulate(common).stdout);
    assert!(table.contains("TTFT") && table.contains("\nlmetric "), "{table}");
}

#[test]
fn policies_with_options_have_names_of_their_own() {
    let cached = r#"{"name":"cache_aware","guard":{"imbalance":{"absolute":64,"relative":1.5}}}"#;
    let precise = r#"{"name":"precise_cache_aware","blend":"off"}"#;
    let common = "--workload hot_prefix --requests 30 --replicas 2";
    let all = format!("{common} --policies precise_cache_aware,{precise},{cached}");
    let json = simulate(&format!("{all} --json"));
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let names: Vec<&String> = value["policies"].as_object().unwrap().keys().collect();
    let imbalance = "cache_aware(guard.imbalance.absolute=64 guard.imbalance.relative=1.5)";
    assert_eq!(names, ["precise_cache_aware", "precise_cache_aware(blend=off)", imbalance]);
    // The options do something: without load in the blend, no request leaves the longest prefix.
    let spills = |name: &str| value["policies"][name]["spills"].as_u64().unwrap();
    assert!(spills(names[0]) > 0 && spills(names[1]) == 0, "{value}");
    let csv = text(&simulate(&format!("{all} --csv")).stdout);
    let columns = |line: &str| line.split(',').count();
    assert!(csv.lines().all(|line| columns(line) == columns("a,".repeat(40).as_str())), "{csv}");
    let twice = simulate(&format!("{common} --policies {precise} --policies {precise}"));
    assert!(text(&twice.stderr).contains("`precise_cache_aware(blend=off)` is there twice"));
}

#[test]
fn fleets_are_compared() {
    let common = "--workload agent --requests 60 --time-scale 8 --policies latency";
    let fleets = "--split 8,4:4 --split 2:2+4 --transfer-ms 2 --transfer-tokens-per-s 50000";
    let json = simulate(&format!("{common} {fleets} --json"));
    assert!(json.status.success(), "{}", text(&json.stderr));
    assert_eq!(simulate(&format!("{common} {fleets} --json")).stdout, json.stdout);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let of = |fleet: &str| &value["fleets"][fleet]["policies"]["latency"];
    for fleet in ["8", "4:4", "2:2+4"] {
        assert_eq!(of(fleet)["answered"], 60);
        assert_eq!(of(fleet)["hand_overs"]["leases_left"], 0);
        assert_eq!(of(fleet)["answer_tokens"], of("8")["answer_tokens"]);
    }
    assert!(of("4:4")["plans"]["split"].as_u64().unwrap() > 0);
    // Nothing else changes where nothing is split.
    let alone = simulate(&format!("{common} --json"));
    let alone: serde_json::Value = serde_json::from_slice(&alone.stdout).unwrap();
    assert_eq!(&alone["policies"]["latency"], of("8"));
    let table = text(&simulate(&format!("{common} {fleets}")).stdout);
    assert!(table.contains("ITL p50") && table.contains("\nlatency 4:4: split "), "{table}");
    let csv = text(&simulate(&format!("{common} {fleets} --csv")).stdout);
    assert_eq!(csv.lines().filter(|line| line.contains(",2:2+4,")).count(), 1, "{csv}");
}

#[test]
fn only_svg_is_drawn() {
    let png = scratch("simulate.png");
    let _ = std::fs::remove_file(&png);
    let refused = simulate(&format!("--workload rag --requests 5 --plot {}", png.display()));
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("only SVG can be drawn"), "{}", text(&refused.stderr));
    assert!(!png.exists());
}

#[test]
fn bad_input_is_said_and_where() {
    let path = scratch("bad.jsonl");
    let good = r#"{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}"#;
    std::fs::write(&path, format!("{good}\n{}\n", good.replace("[1]", "[1,2]"))).unwrap();
    let trace = format!("--trace {}", path.display());
    let path = scratch("one.jsonl");
    std::fs::write(&path, format!("{good}\n")).unwrap();
    let unknown_load = format!("--load 0.8 --trace {}", path.display());
    for (args, status, part) in [
        (trace.as_str(), 1, "bad.jsonl:2: 2 hash_ids for input_length 5: expected 1"),
        ("--trace /nowhere/t.jsonl", 1, "/nowhere/t.jsonl: No such file"),
        ("--workload rag --requests 5 --plot /nowhere/p.svg", 1, "/nowhere/p.svg: No such file"),
        (
            unknown_load.as_str(),
            1,
            "--load: round_robin does not keep up even with arrivals 0.015625",
        ),
        ("--workload rag --replicas 0", 2, "--replicas: replicas is 0: must be from 1 to 4096"),
        ("--workload rag --gateways 65", 2, "--gateways: gateways is 65: must be from 1 to 64"),
        (
            "--workload rag --speeds 1e30",
            2,
            "--speeds: speed is 1000000000000000000000000000000: must be",
        ),
        (
            "--workload rag --restart 9@1",
            2,
            "--restart: restart: replica is 9: must be from 0 to 7",
        ),
        (
            "--workload rag --block-size 0",
            2,
            "--block-size: block-size is 0: must be from 1 to 65536",
        ),
        (
            "--workload rag --max-num-seqs 0",
            2,
            "--max-num-seqs: engine: max_num_seqs is 0: must be at least 1",
        ),
        ("--workload rag --policies latency,latency", 2, "`latency` is there twice"),
        ("--workload rag --split 4:4,2:2+4,4:4", 2, "--split: `4:4` is there twice"),
        (
            "--workload rag --split 4:0",
            2,
            "--split: fleet 4:0: there is no unified and no decode replica",
        ),
        (
            "--workload rag --split 1:1 --policies lmetric",
            2,
            "--policies: `lmetric` is not a policy of Kvasir's own",
        ),
        ("--workload rag --cache-tokens 1000", 2, "the smallest cache holds"),
        (
            "--workload rag --decisions /nowhere/d --policies lmetric",
            2,
            "--decisions: `lmetric` is not",
        ),
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(status), "{args}: {}", text(&output.stderr));
        let error = text(&output.stderr);
        assert!(error.contains(part), "{args}: {error}");
        // What the system says is said once.
        assert!(error.matches("(os error").count() <= 1, "{args}: {error}");
    }
}

#[test]
fn conformance_ends_with_its_verdict() {
    let passed = simulate("--conformance --json");
    assert_eq!(passed.status.code(), Some(0), "{}", text(&passed.stdout));
    let value: serde_json::Value = serde_json::from_slice(&passed.stdout).unwrap();
    assert_eq!((&value["policy"], &value["passed"]), (&"latency".into(), &true.into()));
    assert_eq!(value["salted"]["cross_salt_hits"], 0);
    assert!(value["salted"]["affinity_rate"].as_f64().unwrap() >= 0.95);
    assert!(value["unsalted"]["cross_salt_hits"].as_u64().unwrap() > 0);
    let failed = simulate("--conformance=round_robin");
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stdout));
    assert!(text(&failed.stdout).ends_with("\nfailed\n"));
    for both in ["--conformance --workload rag", "--conformance --decisions /nowhere/log"] {
        assert_eq!(simulate(both).status.code(), Some(2), "{both}");
    }
}
