//! `kvasirctl hash` through the binary, against the engines' golden vectors.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn hash(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvasirctl")).arg("hash").args(args).output().unwrap()
}

fn json_of(args: &[&str]) -> Value {
    let output = hash(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn golden(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden").join(file);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn plain_tokens(doc: &Value, name: &Value) -> Option<String> {
    let tokens = doc["token_sets"][name.as_str()?].as_array()?;
    Some(tokens.iter().map(Value::to_string).collect::<Vec<_>>().join(","))
}

/// Every case of two generations that the command line can say: salts, adapters, images, seeds.
#[test]
fn golden_vectors_come_out_of_the_command() {
    let mut checked = 0;
    for (file, version) in [
        ("vllm-hash/vllm-hash-0.31.0.json", "0.32.0"),
        ("vllm-hash/vllm-hash-0.14.1.json", "0.14.1"),
    ] {
        let doc = golden(file);
        for case in doc["cases"].as_array().unwrap() {
            let request = &case["request"];
            let Some(tokens) = plain_tokens(&doc, &case["tokens"]) else { continue };
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let shared = case["id"].as_str().is_some_and(|id| id.contains("shared_objects"));
            // A random seed cannot be repeated; embeddings have no place on a command line.
            let unset_is_fixed =
                version == "0.32.0" && !case["algo"].as_str().unwrap().starts_with("xx");
            if request.get("prompt_embeds").is_some()
                || shared
                || (case["seed"].is_null() && !unset_is_fixed)
            {
                continue;
            }
            let mut args = vec![
                "--engine=vllm".to_owned(),
                "--engine-version".to_owned(),
                version.to_owned(),
                format!("--algo={}", case["algo"].as_str().unwrap()),
                format!("--block-size={}", case["block_size"]),
                format!("--tokens={tokens}"),
                "--preimage".to_owned(),
            ];
            args.extend(text(&case["seed"]).map(|seed| format!("--seed={seed}")));
            args.extend(text(&request["cache_salt"]).map(|salt| format!("--cache-salt={salt}")));
            if let Some(lora) = request.get("lora") {
                let (name, path) = (lora["name"].as_str().unwrap(), lora["path"].as_str().unwrap());
                args.push(format!("--lora={name}={path}"));
            }
            for item in request["mm"].as_array().into_iter().flatten() {
                let identifier = item["identifier"].as_str().unwrap();
                args.push(format!("--item={identifier}@{}+{}", item["offset"], item["length"]));
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let said = json_of(&args);
            let wanted = case["blocks"].as_array().unwrap();
            assert_eq!(said["blocks"].as_array().unwrap().len(), wanted.len(), "{args:?}");
            for (block, wanted) in said["blocks"].as_array().unwrap().iter().zip(wanted) {
                assert_eq!(block["digest"], wanted["digest"], "{args:?}");
                assert_eq!(block["key"], wanted["u64"], "{args:?}");
                if let Some(preimage) = wanted.get("preimage").filter(|p| p.is_string()) {
                    assert_eq!(&block["preimage"], preimage, "{args:?}");
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked} cases");
}

#[test]
fn the_shape_is_the_contract() {
    let said = json_of(&[
        "--engine",
        "vllm",
        "--engine-version",
        "0.32.0",
        "--algo",
        "sha256",
        "--block-size",
        "16",
        "--tokens",
        "1,2,3",
    ]);
    assert_eq!(said["blocks"].as_array().unwrap().len(), 0);
    // vLLM 0.29 and later: fixed where PYTHONHASHSEED is not set.
    assert!(said["none_hash"].as_str().unwrap().starts_with("066b1e89"));
    let said =
        json_of(&["--engine=sglang", "--engine-version=0.5.3", "--block-size=2", "--tokens=1,2,3"]);
    assert_eq!(said["none_hash"], Value::Null);
    assert_eq!(said["blocks"][0]["digest"], Value::Null);
    assert_eq!(said["blocks"][0].get("preimage"), None);
}

#[test]
fn tokens_come_from_a_file_and_mistakes_are_located() {
    let dir = std::env::temp_dir().join(format!("kvasirctl-hash-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("tokens.json");
    let path = file.to_str().unwrap().to_owned();
    std::fs::write(&file, "[1, 2, 3, 4]").unwrap();
    let common =
        ["--engine", "vllm", "--engine-version", "0.32.0", "--block-size", "2", "--seed", "0"];
    let from_file = json_of(&[&common[..], &["--tokens-file", &path]].concat());
    assert_eq!(from_file, json_of(&[&common[..], &["--tokens", "1,2,3,4"]].concat()));
    assert_eq!(from_file["blocks"].as_array().unwrap().len(), 2);

    std::fs::write(&file, "[1, 2,\n -3]").unwrap();
    let output = hash(&[&common[..], &["--tokens-file", &path]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("tokens.json") && said.contains("line 2"), "{said}");
    std::fs::remove_dir_all(&dir).unwrap();
    let output = hash(&[&common[..], &["--tokens-file", &path]].concat());
    assert_eq!(output.status.code(), Some(1));
}

/// The exit status and what is said of two tokens in one block.
fn said(args: &[&str]) -> (Option<i32>, String) {
    let output = hash(&[args, &["--block-size=2", "--tokens=1,2"]].concat());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_cannot_be_computed_says_why_and_what_to_do() {
    for (engine, args, why) in [
        ("vllm", &["--engine-version=0.32.0", "--algo=xxhash"][..], "random"),
        ("vllm", &["--engine-version=0.28.0"], "random"),
        ("vllm", &["--engine-version=0.10.0", "--algo=builtin", "--seed=0"], "builtin"),
        ("sglang", &["--engine-version=0.5.23", "--lora=sql"], "`lora_name` of events instead"),
        ("sglang", &["--engine-version=0.5.9", "--item=a@0+1"], "--item"),
        ("trtllm", &["--engine-version=v1", "--cache-salt=s"], "std::hash"),
    ] {
        let (status, said) = said(&[&["--engine", engine], args].concat());
        assert_eq!(status, Some(1), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
        // Once, though the error has a source that says the same.
        assert_eq!(said.matches(why).count(), 1, "{said}");
    }
}

#[test]
fn arguments_that_cannot_be() {
    for (engine, args, why) in [
        ("vllm", &["--engine-version=7", "--seed=0"][..], "\"7\" is not a version number"),
        ("vllm", &["--engine-version=0.99.0"], "give its number"),
        ("vllm", &["--engine-version=0.32.0", "--algo=md5"], "sha256_cbor"),
        ("vllm", &["--engine-version=0.12.0", "--algo=xxhash", "--seed=0"], "no hash algorithm"),
        ("vllm", &["--engine-version=0.32.0", "--lora=sql"], "--lora NAME=PATH"),
        ("vllm", &["--engine-version=0.11.0", "--seed=0", "--lora=sql"], "--lora-id N"),
        ("vllm", &["--engine-version=0.11.0", "--seed=0", "--lora-id=1"], "needs --lora"),
        ("vllm", &["--engine-version=0.32.0", "--seed=unset"], "leave --seed out"),
        ("sglang", &["--engine-version=0.5.23", "--seed=0"], "leave --seed out"),
        ("sglang", &["--engine-version=0.5.21", "--algo=dynamo"], "0.5.22 and later"),
        ("trtllm", &["--engine-version=1.2.0"], "--engine-version v1 or v2"),
        ("trtllm", &["--engine-version=v2", "--seed=0"], "leave --seed out"),
        ("trtllm", &["--engine-version=v2", "--lora=sql"], "--lora-id N"),
        ("trtllm", &["--engine-version=v1", "--algo=v2_sha256"], "no hash algorithm"),
        ("loxilb", &["--algo=sha256"], "not a LoxiLB hash algorithm"),
    ] {
        let (status, said) = said(&[&["--engine", engine], args].concat());
        assert_eq!(status, Some(2), "{args:?}: {said}");
        assert!(said.contains(why) && !said.contains("::"), "{args:?}: {said}");
    }
    for args in [
        &["--engine-version=0.32.0", "--block-size=0", "--tokens=1"][..],
        &["--engine-version=0.32.0", "--block-size=2"],
        &["--block-size=2", "--tokens=1"],
        &["--engine-version=0.32.0", "--block-size=2", "--tokens=4294967296"],
    ] {
        let args = &[&["--engine=vllm"], args].concat();
        assert_eq!(hash(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn what_is_not_hashed_is_noted() {
    let vllm = |version, more: &[&'static str]| {
        [&["--engine=vllm", "--engine-version", version, "--seed=0"][..], more].concat()
    };
    let sglang = |version, more: &[&'static str]| {
        [&["--engine=sglang", "--engine-version", version][..], more].concat()
    };
    let (everything, nothing): (&[&str], &[&str]) =
        (&["--cache-salt", "--lora", "--lora-id", "--item"], &[]);
    for (args, noted) in [
        (
            vec![
                "--engine=loxilb",
                "--seed=0",
                "--cache-salt=s",
                "--lora=a",
                "--lora-id=1",
                "--item=x@9+1",
            ],
            everything,
        ),
        (vec!["--engine=loxilb", "--engine-version=1"], &["--engine-version"]),
        (vec!["--engine=loxilb", "--seed=0", "--algo=sha256_sglang"], &["--seed"]),
        (
            vec!["--engine=loxilb", "--seed=123456789012345678901234"],
            &["--seed (longer than 23 bytes)"],
        ),
        (sglang("0.5.9", &["--cache-salt=s", "--lora=a"]), &["--cache-salt", "--lora"]),
        (sglang("0.5.18", &["--cache-salt=s"]), nothing),
        (sglang("0.5.23", &["--lora-id=1"]), &["--lora-id"]),
        (vllm("0.32.0", &["--lora=a=/b", "--lora-id=1"]), &["--lora-id"]),
        // An item beyond the prompt is hashed by the engine all the same.
        (vllm("0.32.0", &["--lora=a=/b", "--cache-salt=s", "--item=x@9+1"]), nothing),
        (vllm("0.30.0", &["--lora=a=/b"]), &["the path of --lora"]),
        (vllm("0.11.0", &["--lora=a", "--lora-id=1"]), &["--lora"]),
        (vllm("0.11.1", &["--lora=a", "--lora-id=1"]), &["--lora-id"]),
        (vec!["--engine=trtllm", "--engine-version=v1", "--lora-id=1"], nothing),
        (vec!["--engine=trtllm", "--engine-version=v2", "--lora=a", "--lora-id=1"], &["--lora"]),
    ] {
        let (status, said) = said(&args);
        assert_eq!(status, Some(0), "{args:?}: {said}");
        let notes: Vec<&str> = said
            .lines()
            .map(|line| line.strip_prefix("kvasirctl: note: ").unwrap())
            .map(|note| note.split_once(" is not hashed by ").unwrap().0)
            .collect();
        assert_eq!(notes, noted, "{args:?}");
    }
}

/// The adapter's number alone is what TensorRT-LLM hashes.
#[test]
fn an_adapter_of_tensorrt_llm_is_its_number() {
    let keys = |more: &[&str]| {
        let common = ["--engine=trtllm", "--engine-version=v1", "--block-size=2", "--tokens=1,2"];
        json_of(&[&common[..], more].concat())
    };
    assert_eq!(keys(&["--lora-id=1"]), keys(&["--lora=a", "--lora-id=1"]));
    assert_ne!(keys(&["--lora-id=1"]), keys(&["--lora-id=2"]));
    assert_ne!(keys(&["--lora-id=1"]), keys(&[]));
}

#[test]
fn sglangs_events_carry_the_key_signed() {
    let said = json_of(&[
        "--engine=sglang",
        "--engine-version=0.5.23",
        "--block-size=4",
        "--tokens=1,2,3,4",
    ]);
    assert_eq!(said["blocks"][0]["key"], "14958615928728313947");
    assert_eq!(said["blocks"][0]["signed"], "-3488128144981237669");
    let output =
        hash(&["--engine=sglang", "--engine-version=0.5.23", "--block-size=4", "--tokens=1,2,3,4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("signed -3488128144981237669"), "{text}");
}

#[test]
fn the_help_tells_the_exit_statuses() {
    let output = hash(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Exit status: 0 with the hashes; 1 where"), "{text}");
}

#[test]
fn no_full_block_is_said() {
    let args = ["--engine=vllm", "--engine-version=0.32.0", "--block-size=16", "--tokens=1,2,3"];
    let output = hash(&[&args[..], &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("3 tokens fill no block of 16"), "{said}");
}
