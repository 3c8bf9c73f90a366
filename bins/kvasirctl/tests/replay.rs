//! `kvasirctl replay` through the real binary, over logs that `kvasirctl simulate` writes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn kvasirctl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvasirctl")).args(args).output().unwrap()
}

fn replay(file: &Path, flags: &[&str]) -> (i32, String, String) {
    let args = [&["replay", file.to_str().unwrap()], flags].concat();
    let Output { status, stdout, stderr } = kvasirctl(&args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A file of its own, with engines that were killed meanwhile in it.
fn simulated(policy: &str, name: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.jsonl"));
    let path = file.to_str().unwrap();
    let fixed = "simulate --workload multi_turn --requests 120 --replicas 3 --time-scale 3 \
                 --restart 1@4+3 --restart 0@20+2 --restart 2@20+2 --policies";
    let args: Vec<&str> = fixed.split_whitespace().chain([policy, "--decisions", path]).collect();
    let output = kvasirctl(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    file
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_simulation_decides_the_same_again() {
    let mut excluded = 0;
    for policy in
        ["latency", "round_robin", "cache_aware", "session", "precise_cache_aware", "power_of_two"]
    {
        let file = simulated(policy, &format!("same-{policy}"));
        let (status, text, stderr) = replay(&file, &[]);
        assert_eq!((status, &*stderr), (0, ""), "{policy}: {text}");
        assert!(text.ends_with(" in 1 file: all come out as in the log\n"), "{text}");
        let decisions = lines(&file).iter().filter(|l| l.contains(r#""line":"decision""#)).count();
        assert!(decisions >= 120 && text.starts_with(&format!("{decisions} decisions")), "{text}");
        let json: Value = serde_json::from_str(&replay(&file, &["--json"]).1).unwrap();
        assert_eq!((&json["equal"], &json["differing"]), (&decisions.into(), &0.into()));
        let unreachable = |l: &&String| l.contains(r#""exclusion":"unreachable""#);
        excluded += lines(&file).iter().filter(unreachable).count();
    }
    assert!(excluded > 0, "engines were killed");
}

#[test]
fn a_choice_that_was_changed_is_found() {
    let file = simulated("latency", "tampered");
    let mut log = lines(&file);
    let place = log.iter().rposition(|line| line.contains(r#""choice":{"endpoint":"#)).unwrap();
    let mut line: Value = serde_json::from_str(&log[place]).unwrap();
    let was = line["choice"]["endpoint"].clone();
    line["choice"]["endpoint"] = "replica-9".into();
    log[place] = line.to_string();
    std::fs::write(&file, log.join("\n") + "\n").unwrap();
    let (status, text, _) = replay(&file, &[]);
    assert_eq!(status, 1, "{text}");
    let found = format!(
        "tampered.jsonl:{}: decision {}: replica-9 in the log, {} now",
        place + 1,
        line["id"],
        was.as_str().unwrap()
    );
    assert!(text.contains(", 1 differ\n") && text.contains(&found), "{found} in {text}");
    let json: Value = serde_json::from_str(&replay(&file, &["--json"]).1).unwrap();
    assert_eq!(json["differences"][0]["logged"]["endpoint"], "replica-9");
    assert_eq!(json["differences"][0]["now"]["endpoint"], was);
}

#[test]
fn what_cannot_be_read_is_located_and_a_cut_end_is_left_out() {
    let file = simulated("round_robin", "broken");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 9]).unwrap();
    let (status, text, _) = replay(&file, &[]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("broken.jsonl: the last line is cut off and left out\n"), "{text}");
    let mut log = lines(&file);
    for (at, line, wanted) in [
        (4, "{\"line\":\"decision\",\"id\":", "broken.jsonl:5: no line of a decision log: EOF"),
        (2, r#"{"line":"verdict"}"#, "broken.jsonl:3: no line of a decision log: unknown variant"),
        (0, r#"{"line":"missing","lines":1}"#, "broken.jsonl:1: the log does not begin with"),
    ] {
        log[at] = line.to_owned();
        std::fs::write(&file, log.join("\n")).unwrap();
        let (status, text, stderr) = replay(&file, &[]);
        assert_eq!((status, &*text), (2, ""), "{stderr}");
        assert!(stderr.contains(wanted), "no {wanted:?} in {stderr}");
    }
    let (status, _, stderr) = replay(Path::new("/nowhere/log"), &[]);
    assert_eq!(
        (status, &*stderr),
        (2, "kvasirctl: /nowhere/log: No such file or directory (os error 2)\n")
    );
    let (status, _, stderr) = replay(Path::new(env!("CARGO_TARGET_TMPDIR")), &[]);
    assert_eq!(status, 2);
    assert!(stderr.contains(": a directory: give the files of one pool in it, "), "{stderr}");
}

#[test]
fn what_is_no_log_is_not_called_equal() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-log.jsonl");
    for (text, wanted) in [
        ("", "no-log.jsonl: no decision log: there is no line `start`"),
        ("not a log", "no-log.jsonl:1: no line of a decision log: "),
        ("{\"line\":\"sta", "no-log.jsonl:1: no line of a decision log: "),
    ] {
        std::fs::write(&file, text).unwrap();
        for flags in [&[][..], &["--policy", "latency"], &["--explain", "1"]] {
            let (status, out, stderr) = replay(&file, flags);
            assert_eq!((status, &*out), (2, ""), "{stderr}");
            assert!(stderr.contains(wanted), "no {wanted:?} in {stderr}");
        }
    }
}

#[test]
fn lines_that_are_missing_are_said() {
    let file = simulated("round_robin", "missing");
    let mut log = lines(&file);
    let place = log.iter().position(|line| line.contains(r#""line":"decision""#)).unwrap();
    log[place] = r#"{"line":"missing","lines":1}"#.to_owned();
    std::fs::write(&file, log.join("\n") + "\n").unwrap();
    let (status, text, _) = replay(&file, &["--differences", "1"]);
    assert_eq!(status, 1, "{text}");
    let gap = format!("missing.jsonl:{}: 1 line could not be written here\n", place + 1);
    let why = "of them where what policies remember is not that of the log: lines are missing";
    for part in [&*gap, " more\n", why] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // Another policy is tried on what is there, and that is said too.
    std::fs::write(&file, log.join("\n")).unwrap();
    let cut = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &cut[..cut.len() - 9]).unwrap();
    let (status, text, _) = replay(&file, &["--policy", "round_robin"]);
    assert_eq!(status, 0, "{text}");
    let cut = "missing.jsonl: the last line is cut off and left out\n";
    let unsure = "by a policy that does not remember all it would: lines are missing in the log\n";
    for part in [&*gap, cut, unsure] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let (_, text, _) = replay(&file, &["--policy", "round_robin", "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["missing_lines"], &json["missing"][0]["lines"]), (&1.into(), &1.into()));
    assert!(json["decisions_without_memory"].as_u64() > Some(100), "{json}");
    assert_eq!(json["cut_off"].as_array().unwrap().len(), 1);
}

#[test]
fn one_decision_is_explained() {
    let file = simulated("latency", "explained");
    let runner_up = r#""runner_up":"#;
    let with_second =
        |line: &&String| line.contains(runner_up) && line.contains("least_latency_warm");
    let line = lines(&file).iter().rfind(with_second).unwrap().clone();
    let record: Value = serde_json::from_str(&line).unwrap();
    let id = record["id"].to_string();
    let (status, text, _) = replay(&file, &["--explain", &id]);
    assert_eq!(status, 0);
    let choice = &record["choice"];
    let (endpoint, second) =
        (choice["endpoint"].as_str().unwrap(), choice["runner_up"].as_str().unwrap());
    for part in [
        format!("decision {id} of pool simulated, "),
        format!("prompt {} tokens, first attempt", record["query"]["prompt_tokens"]),
        format!("\n* {endpoint} "),
        format!("\n+ {second} "),
        format!("* chosen: {endpoint}, by latency: least_latency_warm\n"),
        "  eligibility  all, 3 left\n".to_owned(),
        "the endpoint began to answer after ".to_owned(),
    ] {
        assert!(text.contains(&part), "no {part:?} in {text}");
    }
    let title = text.lines().find(|line| line.contains("endpoint ")).unwrap();
    for column in
        ["device", "pending", "trust", "in flight", "queued", "tokens/s", "expected ms", "score"]
    {
        assert!(title.contains(column), "{column}: {title}");
    }
    let json: Value =
        serde_json::from_str(&replay(&file, &["--explain", &id, "--json"]).1).unwrap();
    assert_eq!(json[0]["decision"]["choice"], *choice);
    assert_eq!(json[0]["outcome"]["answered"], true);
    // Of one that had waited for room it says so.
    assert!(!text.contains("of waiting for room"), "{text}");
    let mut log = lines(&file);
    let place = log.iter().position(|known| *known == line).unwrap();
    log[place] = line.replacen("\"seed\":", "\"waited_ms\":120,\"seed\":", 1);
    std::fs::write(&file, log.join("\n") + "\n").unwrap();
    let (status, text, _) = replay(&file, &["--explain", &id]);
    assert!(status == 0 && text.contains(", after 120 ms of waiting for room\n"), "{text}");
    let (status, text, stderr) = replay(&file, &["--explain", "99999"]);
    assert_eq!((status, &*text), (1, ""));
    assert!(stderr.contains("no decision 99999"), "{stderr}");
}

#[test]
fn why_a_policy_had_no_say_is_explained() {
    let file = simulated("precise_cache_aware", "no-say");
    let line = lines(&file).into_iter().find(|line| line.contains(r#""miss":"no_holder""#));
    let record: Value = serde_json::from_str(&line.unwrap()).unwrap();
    let (status, text, _) = replay(&file, &["--explain", &record["id"].to_string()]);
    assert_eq!(status, 0);
    assert!(text.contains("  precise_cache_aware  no_say (no_holder), "), "{text}");
}

#[test]
fn another_policy_is_tried() {
    let file = simulated("round_robin", "what-if");
    let (status, text, _) = replay(&file, &["--policy", "latency"]);
    assert_eq!(status, 0);
    assert!(
        text.contains("written under round_robin; latency chooses another endpoint in "),
        "{text}"
    );
    assert!(text.contains("is not followed"), "{text}");
    let json = |policy: &str| -> Value {
        serde_json::from_str(&replay(&file, &["--json", "--policy", policy]).1).unwrap()
    };
    let latency = json(r#"{"name":"latency"}"#);
    assert!(latency["otherwise"].as_u64() > Some(20), "{latency}");
    let cached = |of: &str| latency[of]["expected_cached_tokens"].as_u64().unwrap();
    assert!(cached("now") > cached("logged"), "{latency}");
    assert_eq!(json("round_robin")["otherwise"], 0);
    let (status, _, stderr) = replay(&file, &["--policy", "cache_aware"]);
    assert_eq!(status, 2);
    assert!(stderr.contains("`cache_aware` reads the keys of prompts"), "{stderr}");
}

#[test]
fn only_one_own_policy_behind_one_gateway_is_logged() {
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("never.jsonl");
    let path = log.to_str().unwrap();
    for (args, wanted) in [
        ("--policies latency,round_robin", "--decisions: give one policy in --policies"),
        ("--policies lmetric", "`lmetric` is not a policy of Kvasir's own"),
        ("--policies latency --gateways 2", "a decision log is of one gateway, and there are 2"),
    ] {
        let fixed = "simulate --workload rag --requests 5 --decisions";
        let args: Vec<&str> =
            fixed.split_whitespace().chain([path]).chain(args.split_whitespace()).collect();
        let output = kvasirctl(&args);
        assert!(!output.status.success());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(wanted), "no {wanted:?} in {stderr}");
        assert!(!log.exists());
    }
}

/// A line of a pool that splits requests, with these endpoints; numbers as policies.md has them.
fn pair_decision(select: &str, policy: &str, endpoints: &Value) -> String {
    json!({
        "line": "decision", "id": 1, "at_us": 5, "seed": "0000000000000001",
        "query": {"prompt_tokens": 8000}, "first_attempt": true,
        "pairing": {"select": select, "transfer_s": 0.005},
        "cut": [
            {"prefill": "http://p2"}, {"decode": "http://d2"},
            {"prefill": "http://p1", "decode": "http://d3"},
        ],
        "endpoints": endpoints,
        "choice": {
            "endpoint": "http://d1", "prefill": "http://p1", "plan": "split", "policy": policy,
            "reason": "least_latency_cold", "runner_up": null, "shadow": null,
            "stages": [],
        },
    })
    .to_string()
}

#[test]
fn a_pair_is_explained_with_the_terms_of_both_sides_and_the_plans_not_taken() {
    let endpoint = |name: &str, role: &str, in_flight: u32, device: u32, score: f64| {
        json!({
            "name": format!("http://{name}"), "role": role, "overlap": {"device": device},
            "trust": "exact", "in_flight": in_flight, "queued_prefill_tokens": 800,
            "prefill_rate": 8000.0, "fetch_rate": 64000.0, "weight": 100, "kv_usage": 0.95,
            "waiting": 2, "transfer_rate": 200_000.0, "score": score,
        })
    };
    let endpoints = json!([
        endpoint("p1", "prefill", 1, 4000, 1.0),
        endpoint("d1", "decode", 10, 2000, 1.0),
        endpoint("u1", "unified", 3, 0, 1.0),
    ]);
    let start = lines(&simulated("latency", "pairs"))[0].clone();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pairs-written.jsonl");
    let write = |select: &str, policy: &str| {
        let line = pair_decision(select, policy, &endpoints);
        std::fs::write(&file, format!("{start}\n{line}\n")).unwrap();
    };
    let has = |text: &str, wanted: &str| {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|line| squeezed(line) == wanted), "{wanted}: {text}");
    };
    write("cost", "latency");
    let (status, text, stderr) = replay(&file, &["--explain", "1"]);
    assert_eq!((status, &*stderr), (0, ""));
    for cut in
        ["from http://p2 to anybody", "from anybody to http://d2", "from http://p1 to http://d3"]
    {
        has(&text, &format!("no hand-over: {cut}"));
    }
    // 1.5 · (1.75 · 0.1 + 2.5 · 0.5) = 2.1375;
    has(&text, "> http://p1 4000 0.1000 0.5000 1.50 0.0000 2.1375");
    // 0.005 + 6000 / 200,000 = 0.035; 0.6 · 10 · 0.1 = 0.6; 0.5 · 2.5 · 0.75 = 0.9375;
    // all: 0.035 + 1.5 · 1.75 · 0.1 + 0.9375 + 0.6; alone: 0.2625 + 1.5 · 2.5 · 0.75 + 6 · 0.85 + 0.45.
    has(
        &text,
        "* http://d1 2000 6000 0.0050 200000 0.0350 10 0.6000 0.1000 1.50 0.9375 0.0000 1.8350 8.6250",
    );
    has(&text, "* split http://p1 http://d1 3.9725");
    has(&text, "decode_holds http://d1 http://d1 8.6250");
    // 0.2625 + 1.5 · 2.5 · 1 + 0.6 · 3 · 1.1
    has(&text, "unified http://u1 http://u1 5.9925");
    let json: Value =
        serde_json::from_str(&replay(&file, &["--explain", "1", "--json"]).1).unwrap();
    let pair = &json[0]["pair"];
    assert_eq!(pair["plans"][0]["plan"], "split");
    assert_eq!(pair["plans"][0]["computes"], "http://p1");
    assert_eq!(pair["decode"][0]["endpoint"], "http://d1");
    assert_eq!(pair["prefill"][0]["overlap"], 4000);
    assert_eq!(pair["decode"][0]["transfer"]["tokens"], 6000);
    // By load there are no costs: 0 + 2 waiting, and so on.
    write("e4", "latency");
    let (_, text, _) = replay(&file, &["--explain", "1"]);
    // 2 + 10 · 0.95
    has(&text, "* http://d1 11.50");
    let json: Value =
        serde_json::from_str(&replay(&file, &["--explain", "1", "--json"]).1).unwrap();
    let first = &json[0]["pair"]["decode_loads"][0];
    assert_eq!((&first["endpoint"], &first["load"]), (&"http://d1".into(), &11.5.into()));
    write("least_load", "round_robin");
    let (_, text, _) = replay(&file, &["--explain", "1"]);
    has(&text, "* http://d1 12.00");
}
