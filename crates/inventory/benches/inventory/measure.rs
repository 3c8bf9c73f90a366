//! Clocks, memory, quantiles.

use std::fmt;
use std::time::Duration;

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4096
}

/// CPU seconds that this process has used, in hundredths.
pub fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Times of many calls.
#[derive(Default)]
pub struct Quantiles(Vec<Duration>);

impl Quantiles {
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Microseconds that the fraction `q` of the calls took at most.
    pub fn at(&self, q: f64) -> f64 {
        let mut times = self.0.clone();
        times.sort_unstable();
        let at = ((times.len() - 1) as f64 * q) as usize;
        times[at].as_secs_f64() * 1e6
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum: Duration = self.0.iter().sum();
        let rate = self.0.len() as f64 / sum.as_secs_f64();
        let (p50, p99) = (self.at(0.5), self.at(0.99));
        write!(f, "p50 {p50:.2} µs, p99 {p99:.2} µs, {:.0} k/s", rate / 1e3)
    }
}
