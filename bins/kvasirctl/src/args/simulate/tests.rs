use clap::Parser as _;

use super::*;
use crate::args::{Args, Command};

fn parse(rest: &str) -> Result<SimulateArgs, String> {
    let line = format!("kvasirctl simulate {rest}");
    match Args::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?.command
    {
        Command::Simulate(args) => Ok(*args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_can_be_given() {
    let args = parse(
        "--trace t.jsonl --requests 10 --replicas 2 --gateways 3 --policies latency,lmetric,random \
         --time-scale 2.5 --seed 4 --block-size 64 --cache-tokens 100,200 --speeds 1,0.5 \
         --cost per_token=1e-5,weights=0.002 --restart 1@30 --restart 0@5+2.5 --event-loss 0.1",
    )
    .unwrap();
    let names: Vec<String> = args.policies().iter().map(SimPolicy::name).collect();
    assert_eq!(names, ["latency", "lmetric", "random"]);
    assert_eq!(args.engines.cost, [(CostPart::PerToken, 1e-5), (CostPart::Weights, 0.002)]);
    assert_eq!(args.engines.cache_tokens, [100, 200]);
    assert_eq!((args.restarts[0].replica, args.restarts[0].down.as_secs()), (1, 30));
    assert_eq!((args.restarts[1].replica, args.restarts[1].down.as_millis()), (0, 2_500));
    assert_eq!(parse("--workload rag").unwrap().workload, Some(Synthetic::Rag));
}

#[test]
fn what_cannot_be_is_said_clearly() {
    for (rest, part) in [
        ("", "--trace <FILE>|--workload <NAME>"),
        ("--workload mixed", "unknown workload `mixed`, expected one of `multi_turn`"),
        ("--workload rag --trace t", "cannot be used with"),
        ("--workload rag --policies best", "unknown policy `best`, expected one of `latency`"),
        ("--workload rag --policies latency,", "unknown policy ``"),
        (
            "--workload rag --policies {\"name\":\"lmetric\"}",
            "Kvasir's own with its options: unknown",
        ),
        (
            "--workload rag --policies {\"name\":\"ttft\"}lmetric",
            "expected a comma before `lmetric`",
        ),
        ("--workload rag --policies {\"name\":", "not JSON: EOF"),
        ("--workload rag --policies {\"name\":\"chwbl\",\"f\":1}", "unknown field `f`"),
        ("--workload rag --plot p.png", "only SVG can be drawn"),
        ("--workload rag --plot svg", "only SVG can be drawn"),
        ("--workload rag --time-scale 0", "must be above 0"),
        ("--workload rag --time-scale 2 --load 0.5", "cannot be used with"),
        ("--workload rag --speeds 1,x", "not a number"),
        ("--workload rag --cost per_token", "expected PART=SECONDS"),
        ("--workload rag --cost tokens=1", "unknown part `tokens`"),
        ("--workload rag --restart 1", "expected REPLICA@SECOND"),
        ("--workload rag --restart x@1", "expected REPLICA@SECOND"),
        ("--workload rag --json --csv", "cannot be used with"),
        ("--workload rag --requests 0", "1..=4000000"),
        ("--workload rag --split 4:", "expected P:D, P:D+U or U"),
        ("--workload rag --split 4:4,a", "expected P:D, P:D+U or U"),
        ("--workload rag --split 4:4+", "expected P:D, P:D+U or U"),
        ("--workload rag --split 4:4 --transfer-ms -1", "unexpected argument"),
        ("--workload rag --split 4:4 --transfer-tokens-per-s 0", "must be above 0"),
        ("--conformance --split 4:4", "cannot be used with"),
    ] {
        let error = parse(rest).unwrap_err();
        assert!(error.contains(part), "{rest}: {error}");
    }
}

#[test]
fn policies_may_have_options_with_commas_in_them() {
    let names = |rest: &str| -> Vec<String> {
        let args = parse(&format!("--workload rag {rest}")).unwrap();
        args.policies().iter().map(SimPolicy::name).collect()
    };
    assert_eq!(names(""), ["round_robin", "latency"]);
    let soft = r#"{"name":"precise_cache_aware","blend":"soft","load_penalty":8}"#;
    let e4 = r#"{"name":"least_load","score":"e4"}"#;
    assert_eq!(
        names(&format!("--policies latency,{soft},lmetric,{e4} --policies chwbl")),
        [
            "latency",
            "precise_cache_aware(blend=soft load_penalty=8)",
            "lmetric",
            "least_load(score=e4)",
            "chwbl"
        ]
    );
}

#[test]
fn help_has_every_policy() {
    use clap::CommandFactory as _;

    let mut command = Args::command();
    let help = command.find_subcommand_mut("simulate").unwrap().render_long_help().to_string();
    for policy in SimPolicy::all() {
        assert!(help.contains(&format!("`{}`", policy.name())), "{}", policy.name());
    }
}

#[test]
fn fleets_are_said_in_short() {
    let fleets = |rest: &str| -> Vec<String> {
        let args = parse(&format!("--workload rag {rest}")).unwrap();
        args.fleets().iter().map(ToString::to_string).collect()
    };
    assert_eq!(fleets(""), ["8"]);
    assert_eq!(fleets("--replicas 3"), ["3"]);
    assert_eq!(fleets("--split 4:4"), ["4:4"]);
    assert_eq!(fleets("--split 2:2 --replicas 4"), ["2:2+4"]);
    let several = fleets("--split 8,4:4,5:3 --split 2:2+4 --replicas 1");
    assert_eq!(several, ["8", "4:4+1", "5:3+1", "2:2+4"]);
    assert_eq!(fleets("--split 0:2"), ["0:2"]);
}

#[test]
fn transfers_take_what_the_gateway_takes_for_granted() {
    let told = |rest: &str| parse(&format!("--workload rag {rest}")).unwrap().hand_over();
    assert_eq!(told(""), kvasir_sim::Split::default());
    let defaults = kvasir_fleet::SplitSettings::default();
    let found = told("");
    assert_eq!((found.transfer_time, found.lease), (defaults.transfer_time, defaults.lease));
    assert!((found.transfer_rate - defaults.transfer_rate).abs() < 1e-9);
    let other = told("--transfer-ms 1.5 --transfer-tokens-per-s 20000 --untold-transfers");
    assert_eq!(other.transfer_time, Duration::from_micros(1_500));
    assert!((other.transfer_rate - 20_000.0).abs() < 1e-9 && !other.told);
}
