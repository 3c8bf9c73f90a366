use super::*;

const LINE: &str =
    r#"{"timestamp": 1500, "input_length": 600, "output_length": 5, "hash_ids": [0, 9]}"#;
const HEAD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

fn parse(text: &str) -> Result<Workload, (usize, TraceProblem)> {
    Workload::parse_trace("t", text)
}

#[test]
fn mooncake_blocks_become_segments() {
    let early = LINE.replace("1500", "500").replace("9]", "8]");
    let trace = parse(&format!("{LINE}\n\n{early}\n")).unwrap();
    let segments = |last| vec![Segment { id: 0, tokens: 512 }, Segment { id: last, tokens: 88 }];
    assert_eq!(trace.requests.len(), 2);
    assert_eq!((trace.requests[0].release, trace.requests[0].output_tokens), (Release::At(0.0), 5));
    assert_eq!(trace.requests[0].prompt, segments(8));
    assert_eq!(trace.requests[1].release, Release::At(1.0));
    assert_eq!(trace.requests[1].prompt, segments(9));
    assert!((trace.span() - 1.0).abs() < 1e-9);
    assert_eq!(trace.longest(), 605);
}

#[test]
fn azure_lines_have_times_and_lengths() {
    let text = format!(
        "{HEAD}\n2023-12-31 23:59:59.5000000,374,44\n2024-01-01 00:00:01.0000000,10,0\n\
         2024-03-01 00:00:01,10,2\n"
    );
    let trace = parse(&text).unwrap();
    assert_eq!(trace.requests[0].prompt_tokens(), 374);
    assert_eq!(trace.requests[1].release, Release::At(1.5));
    assert_eq!(trace.requests[1].output_tokens, 1);
    // 60 days: 2024 is a leap year.
    assert_eq!(trace.requests[2].release, Release::At(1.5 + 60.0 * 86_400.0));
    assert_ne!(trace.requests[1].tokens(), trace.requests[2].tokens());
}

#[test]
fn bad_lines_are_named() {
    for (line, part) in [
        (LINE.replace("600", "1025"), "2 hash_ids for input_length 1025: expected 3 of 512"),
        (LINE.replace("600", "0"), "input_length is `0`"),
        (LINE.replace("5,", "99999999,"), "output_length is `99999999`"),
        (LINE.replace("600", "\"x\""), "not a request of a Mooncake trace"),
        ("[]".to_owned(), "not a request of a Mooncake trace"),
    ] {
        let (number, problem) = parse(&format!("{LINE}\n{line}")).unwrap_err();
        assert_eq!(number, 2, "{line}");
        assert!(problem.to_string().contains(part), "{problem}");
    }
    for (line, part) in [
        ("2024-01-01 00:00:00,1", "expected TIMESTAMP,"),
        ("2024-01-01 00:00:00,1,2,3", "expected TIMESTAMP,"),
        ("2024-01-01T00:00:00,1,2", "TIMESTAMP is `2024-01-01T00:00:00`"),
        ("2024-13-01 00:00:00,1,2", "TIMESTAMP is"),
        ("2024-01-01 00:00:00,-1,2", "ContextTokens is `-1`"),
        ("2024-01-01 00:00:00,1,two", "GeneratedTokens is `two`"),
    ] {
        let (number, problem) = parse(&format!("{HEAD}\n\n{line}")).unwrap_err();
        assert_eq!(number, 3, "{line}");
        assert!(problem.to_string().contains(part), "{problem}");
    }
    assert_eq!(parse("time,a,b\n1,2,3"), Err((1, TraceProblem::Format)));
    assert!(parse("\n").is_err_and(|(line, _)| line == 0));
    assert!(parse(HEAD).is_err_and(|(line, _)| line == 0));
}

#[test]
fn errors_name_file_and_line() {
    let path = std::env::temp_dir().join(format!("kvasir-sim-trace-{}.jsonl", std::process::id()));
    std::fs::write(&path, format!("{LINE}\n{{\n")).unwrap();
    let error = Workload::read_trace(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.starts_with(&format!("{}:2: not a request", path.display())), "{error}");
    let missing = Workload::read_trace(&path).unwrap_err().to_string();
    assert!(missing.contains("No such file"), "{missing}");
}
