//! The report as text, for terminals of 80 columns.

use crate::report::PolicyReport;

/// Width of the first column.
const LABEL: usize = 20;
/// Least width of a policy's column: eight digits, grouped, and two spaces.
const COLUMN: usize = 12;

/// One row for each number, one column for each policy.
#[must_use]
pub fn table(reports: &[PolicyReport]) -> String {
    let widths: Vec<usize> =
        reports.iter().map(|report| COLUMN.max(report.policy.len() + 2)).collect();
    let mut text = String::new();
    let mut row = |label: &str, cell: &dyn Fn(&PolicyReport) -> String| {
        text.push_str(&format!("{label:<LABEL$}"));
        for (report, width) in reports.iter().zip(&widths) {
            text.push_str(&format!("{:>width$}", cell(report)));
        }
        text.push('\n');
    };
    row("", &|report| report.policy.clone());
    row("token hit rate, %", &|report| format!("{:.1}", report.token_hit_rate() * 100.0));
    row("TTFT p50, ms", &|report| format!("{:.0}", report.ttft.p50));
    row("TTFT p99, ms", &|report| format!("{:.0}", report.ttft.p99));
    row("end to end p50, ms", &|report| format!("{:.0}", report.e2e.p50));
    row("end to end p99, ms", &|report| format!("{:.0}", report.e2e.p99));
    row("prompt tokens", &|report| grouped(report.prompt_tokens));
    row("  cached, predicted", &|report| grouped(report.predicted));
    row("  cached, reported", &|report| grouped(report.reported));
    row("requests", &|report| grouped(report.answers()));
    let engines = reports.iter().map(|report| report.requests.len()).max().unwrap_or(0);
    for place in 0..engines {
        row(&format!("  engine {}", place + 1), &|report| {
            report.requests.get(place).map_or_else(|| "-".to_owned(), |(_, n)| grouped(*n))
        });
    }
    text
}

/// What the last policy was worth over the first, in a sentence; nothing without two of them, or
/// without answers.
#[must_use]
pub fn verdict(reports: &[PolicyReport]) -> Option<String> {
    let [first, .., last] = reports else { return None };
    let (before, now) = (first.ttft.p50, last.ttft.p50);
    if before <= 0.0 || now <= 0.0 {
        return None;
    }
    let (factor, word) =
        if now <= before { (before / now, "shorter") } else { (now / before, "longer") };
    Some(format!(
        "Median TTFT: {factor:.1} times {word} under {} than {}.",
        last.policy, first.policy
    ))
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Percentiles;

    fn report(policy: &str, tokens: u64, ttft: f64) -> PolicyReport {
        PolicyReport {
            policy: policy.to_owned(),
            prompt_tokens: tokens,
            predicted: tokens / 2,
            reported: tokens / 2,
            ttft: Percentiles { p50: ttft, p99: ttft * 2.0 },
            e2e: Percentiles { p50: 1_234.5, p99: 59_999.0 },
            requests: (1..=4).map(|n| (format!("http://127.0.0.1:{n}"), n * 1_000)).collect(),
        }
    }

    #[test]
    fn the_table_reads_like_this() {
        let reports = [report("round_robin", 1_000_000, 200.4), report("latency", 12, 50.0)];
        let expected = [
            "                      round_robin     latency",
            "token hit rate, %            50.0        50.0",
            "TTFT p50, ms                  200          50",
            "TTFT p99, ms                  401         100",
            "end to end p50, ms           1234        1234",
            "end to end p99, ms          59999       59999",
            "prompt tokens           1,000,000          12",
            "  cached, predicted       500,000           6",
            "  cached, reported        500,000           6",
            "requests                   10,000      10,000",
            "  engine 1                  1,000       1,000",
            "  engine 2                  2,000       2,000",
            "  engine 3                  3,000       3,000",
            "  engine 4                  4,000       4,000",
        ];
        let text = table(&reports);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn all_policies_fit_80_columns() {
        let names = ["latency", "precise_cache_aware", "least_load", "round_robin"];
        let reports = names.map(|name| report(name, 99_999_999, 1.0));
        let text = table(&reports);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    }

    #[test]
    fn the_verdict_says_which_way_it_went() {
        let (slow, fast) = (report("round_robin", 100, 300.0), report("latency", 100, 100.0));
        let better = verdict(&[slow.clone(), fast.clone()]).unwrap();
        assert_eq!(better, "Median TTFT: 3.0 times shorter under latency than round_robin.");
        assert!(verdict(&[fast.clone(), slow]).unwrap().contains("3.0 times longer under round"));
        assert_eq!(verdict(std::slice::from_ref(&fast)), None);
        assert_eq!(verdict(&[fast, report("empty", 0, 0.0)]), None);
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
