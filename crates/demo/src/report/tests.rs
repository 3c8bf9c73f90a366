use super::*;

fn ms(values: &[u64]) -> Percentiles {
    Percentiles::of(values.iter().map(|ms| Duration::from_millis(*ms)))
}

#[test]
fn percentiles_are_nearest_ranks() {
    assert_eq!(ms(&[]), Percentiles { p50: 0.0, p99: 0.0 });
    assert_eq!(ms(&[7]), Percentiles { p50: 7.0, p99: 7.0 });
    assert_eq!(ms(&[4, 1, 3, 2]), Percentiles { p50: 2.0, p99: 4.0 });
    let hundred: Vec<u64> = (1..=100).rev().collect();
    assert_eq!(ms(&hundred), Percentiles { p50: 50.0, p99: 99.0 });
    let more: Vec<u64> = (1..=101).collect();
    assert_eq!(ms(&more), Percentiles { p50: 51.0, p99: 100.0 });
}

/// Against the definition: the least value that at least p of 100 do not exceed.
#[test]
fn percentiles_are_what_they_are_defined_as() {
    for count in 1..=250u64 {
        let values: Vec<u64> = (0..count).map(|n| n * n % 97).collect();
        let naive = |percent: u64| {
            let enough = |v: u64| values.iter().filter(|x| **x <= v).count() as u64 * 100;
            let least = values.iter().copied().filter(|v| enough(*v) >= percent * count).min();
            least.unwrap() as f64
        };
        assert_eq!(ms(&values), Percentiles { p50: naive(50), p99: naive(99) }, "{count}");
    }
}

fn answer(endpoint: Option<&str>, ttft: u64, cached: u64, predicted: Option<u64>) -> Answer {
    Answer {
        text: String::new(),
        ttft: Duration::from_micros(ttft * 1_000 + 123),
        e2e: Duration::from_millis(2 * ttft),
        prompt_tokens: 100,
        cached_tokens: cached,
        predicted_tokens: predicted,
        endpoint: endpoint.map(str::to_owned),
    }
}

#[test]
fn answers_are_added_up() {
    let answers = [
        answer(Some("http://b"), 10, 32, Some(16)),
        answer(Some("http://b"), 20, 0, None),
        answer(Some("http://x"), 30, 64, Some(64)),
        answer(None, 40, 0, Some(0)),
    ];
    let endpoints = ["http://a".to_owned(), "http://b".to_owned()];
    let report = PolicyReport::new("latency", &endpoints, &answers);
    let counted: Vec<(&str, u64)> =
        report.requests.iter().map(|(url, count)| (url.as_str(), *count)).collect();
    let expected = [("http://a", 0), ("http://b", 2), ("http://x", 1), ("unknown", 1)];
    assert_eq!(counted, expected);
    assert_eq!((report.prompt_tokens, report.predicted, report.reported), (400, 80, 96));
    assert_eq!((report.token_hit_rate(), report.answers()), (0.24, 4));
}

#[test]
fn the_json_has_this_shape() {
    let endpoints = ["http://a".to_owned(), "http://b".to_owned()];
    let answers = [answer(Some("http://b"), 10, 33, Some(32))];
    let reports = [
        PolicyReport::new("round_robin", &endpoints, &answers),
        PolicyReport::new("latency", &endpoints, &[]),
    ];
    let text = json(&reports).to_string();
    let expected = concat!(
        r#"{"policies":{"round_robin":{"token_hit_rate":0.33,"#,
        r#""ttft_ms":{"p50":10.123,"p99":10.123},"e2e_ms":{"p50":20.0,"p99":20.0},"#,
        r#""requests":{"http://a":0,"http://b":1},"#,
        r#""cached_tokens":{"predicted":32,"reported":33}},"#,
        r#""latency":{"token_hit_rate":0.0,"#,
        r#""ttft_ms":{"p50":0.0,"p99":0.0},"e2e_ms":{"p50":0.0,"p99":0.0},"#,
        r#""requests":{"http://a":0,"http://b":0},"#,
        r#""cached_tokens":{"predicted":0,"reported":0}}}}"#,
    );
    assert_eq!(text, expected);
}
