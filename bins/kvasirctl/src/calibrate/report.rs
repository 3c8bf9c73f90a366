//! What was measured, fitted and compared: for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::check::{Compared, Side};
use super::engine::Limits;
use super::fit::Fitted;
use super::measure::{Measured, Measurement, What};

/// Everything there is to report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) engine: String,
    pub(super) model: String,
    pub(super) limits: Limits,
    pub(super) measurement: Measurement,
    pub(super) fitted: Fitted,
    /// Whether `--batches` asks for more answers at a time than the engine runs.
    pub(super) batches_cut: bool,
    pub(super) compared: Option<Compared>,
    /// Why nothing was compared though it was asked for.
    pub(super) check_error: Option<String>,
}

impl Report {
    /// The arguments of `kvasirctl simulate` for such an engine.
    pub(super) fn arguments(&self) -> String {
        let (cost, limits) = (self.fitted.cost, &self.limits);
        let parts = [
            ("step_overhead", cost.step_overhead),
            ("weights", cost.weights),
            ("per_token", cost.per_token),
            ("per_request", cost.per_request),
            ("per_context_token", cost.per_context_token),
            ("per_attention_pair", cost.per_attention_pair),
        ];
        let parts: Vec<String> =
            parts.iter().map(|(name, seconds)| format!("{name}={seconds:.3e}")).collect();
        format!(
            "--cost {} --dispatch-delay {:.3} --max-num-batched-tokens {} --max-num-seqs {} \
             --block-size {} --cache-tokens {}",
            parts.join(","),
            self.fitted.request * 1e3,
            limits.max_num_batched_tokens,
            limits.max_num_seqs,
            limits.block_size,
            limits.cache_tokens,
        )
    }

    /// Each measured quantity and what the model says of it, in seconds.
    fn points(&self) -> impl Iterator<Item = (&Measured, f64)> {
        self.measurement.all.iter().zip(self.fitted.seconds.iter().copied())
    }

    /// Mean and greatest relative error of the model, without sign.
    fn errors(&self) -> (f64, f64) {
        let off: Vec<f64> = self.points().map(|(m, said)| off(m, said).abs()).collect();
        let mean = off.iter().sum::<f64>() / off.len().max(1) as f64;
        (mean, off.iter().copied().fold(0.0, f64::max))
    }

    /// Tables.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Limits { max_model_len, max_num_batched_tokens, max_num_seqs, .. } = self.limits;
        writeln!(out, "{}, model {}", self.engine, self.model)?;
        writeln!(
            out,
            "max_model_len {max_model_len}, max_num_batched_tokens {max_num_batched_tokens}, \
             max_num_seqs {max_num_seqs}, block_size {}, cache_tokens {}",
            self.limits.block_size, self.limits.cache_tokens
        )?;
        for line in self.notes() {
            writeln!(out, "note: {line}")?;
        }
        let head = ["milliseconds", "samples", "counted", "least", "most", "fitted", "off"];
        let [what, samples, counted, least, most, fitted, error] = head;
        writeln!(
            out,
            "\n{what:<38}{samples:>8}{counted:>10}{least:>10}{most:>10}{fitted:>10}{error:>9}"
        )?;
        for (measured, said) in self.points() {
            let ms = |seconds: Option<&f64>| seconds.map_or(0.0, |seconds| seconds * 1e3);
            writeln!(
                out,
                "{:<38}{:>8}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>+8.1}%",
                name(measured.what),
                measured.readings.len(),
                measured.observation.seconds * 1e3,
                ms(measured.readings.first()),
                ms(measured.readings.last()),
                said * 1e3,
                off(measured, said) * 100.0,
            )?;
        }
        let (mean, greatest) = self.errors();
        writeln!(
            out,
            "\nThe model is off by {:.1} % on average and {:.1} % at most. For kvasirctl simulate:\
             \n\n{}",
            mean * 100.0,
            greatest * 100.0,
            self.arguments()
        )?;
        self.compared.as_ref().map_or(Ok(()), |compared| write_compared(out, compared))
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.limits.assumed.is_empty() {
            let names = self.limits.assumed.join(", ");
            notes.push(format!("the engine does not tell, and nobody gave: {names}"));
        }
        if !self.measurement.cached_told {
            notes.push(
                "the engine does not report cached tokens: that nothing was cached is not checked"
                    .to_owned(),
            );
        }
        if self.batches_cut {
            notes.push(match self.limits.max_num_seqs {
                0 | 1 => "--batches are not measured: max_num_seqs is 1".to_owned(),
                most => format!("--batches above max_num_seqs are measured as {most}"),
            });
        }
        if !self.fitted.requests_told_apart {
            notes.push(
                "no step served two requests: step_overhead and per_request cannot be told apart, \
                 only their sum is measured"
                    .to_owned(),
            );
        }
        if let Some(error) = &self.check_error {
            notes.push(format!("the comparison of a workload failed: {error}"));
        }
        notes
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> Value {
        let (cost, limits) = (self.fitted.cost, &self.limits);
        let points: Vec<Value> = self
            .points()
            .map(|(measured, said)| {
                json!({
                    "what": name(measured.what),
                    "samples": measured.readings.len(),
                    "counted_s": measured.observation.seconds,
                    "least_s": measured.readings.first(),
                    "most_s": measured.readings.last(),
                    "fitted_s": said,
                    "off": off(measured, said),
                })
            })
            .collect();
        let (mean, greatest) = self.errors();
        json!({
            "engine": self.engine,
            "model": self.model,
            "limits": {
                "max_model_len": limits.max_model_len,
                "max_num_batched_tokens": limits.max_num_batched_tokens,
                "max_num_seqs": limits.max_num_seqs,
                "block_size": limits.block_size,
                "cache_tokens": limits.cache_tokens,
                "assumed": limits.assumed,
            },
            "requests": self.measurement.requests,
            "rounds": self.measurement.rounds,
            "cached_tokens_told": self.measurement.cached_told,
            "cost": {
                "step_overhead": cost.step_overhead,
                "weights": cost.weights,
                "per_token": cost.per_token,
                "per_request": cost.per_request,
                "per_context_token": cost.per_context_token,
                "per_attention_pair": cost.per_attention_pair,
            },
            "dispatch_delay_s": self.fitted.request,
            "arguments": self.arguments(),
            "points": points,
            "off": {"mean": mean, "greatest": greatest},
            "notes": self.notes(),
            "check": self.compared.as_ref().map(compared_json),
            "check_error": self.check_error,
        })
    }
}

fn name(what: What) -> String {
    match what {
        What::FirstToken { prompt } => format!("first token, prompt of {prompt}"),
        What::Step { answers: 1, prompt } => format!("next token, after a prompt of {prompt}"),
        What::Step { answers, .. } => format!("next token of each of {answers} answers"),
    }
}

/// How much more the model says than was measured, as a part of that.
fn off(measured: &Measured, said: f64) -> f64 {
    said / measured.observation.seconds - 1.0
}

const NAMES: [&str; 6] = ["TTFT mean", "TTFT p50", "TTFT p90", "e2e mean", "e2e p50", "e2e p90"];

fn numbers(side: &Side) -> [f64; 6] {
    let Side { ttft_ms, e2e_ms, .. } = side;
    [ttft_ms.mean, ttft_ms.p50, ttft_ms.p90, e2e_ms.mean, e2e_ms.p50, e2e_ms.p90]
}

fn write_compared(out: &mut String, compared: &Compared) -> std::fmt::Result {
    let Compared { requests, rate, full_rate, live, simulated } = compared;
    writeln!(
        out,
        "\n{requests} requests, {rate:.2} a second, {:.0} % of the {full_rate:.2} the model keeps \
         up with:\n\n{:<12}{:>12}{:>12}{:>12}",
        100.0 * rate / full_rate,
        "",
        "live, ms",
        "model, ms",
        "model/live"
    )?;
    for ((name, live), model) in NAMES.iter().zip(numbers(live)).zip(numbers(simulated)) {
        writeln!(out, "{name:<12}{live:>12.1}{model:>12.1}{:>12.2}", model / live)?;
    }
    let percent = |rate: Option<f64>| {
        rate.map_or_else(|| "not told".to_owned(), |rate| format!("{:.1} %", rate * 100.0))
    };
    writeln!(
        out,
        "{:<12}{:>12}{:>12}",
        "cached",
        percent(live.hit_rate),
        percent(simulated.hit_rate)
    )
}

fn compared_json(compared: &Compared) -> Value {
    let side = |side: &Side| {
        json!({
            "ttft_ms": side.ttft_ms, "e2e_ms": side.e2e_ms, "token_hit_rate": side.hit_rate,
        })
    };
    let ratios = numbers(&compared.simulated).into_iter().zip(numbers(&compared.live));
    let ratios: serde_json::Map<String, Value> = NAMES
        .iter()
        .zip(ratios)
        .map(|(name, (model, live))| (name.replace(' ', "_").to_lowercase(), json!(model / live)))
        .collect();
    json!({
        "requests": compared.requests,
        "requests_per_second": compared.rate,
        "full_requests_per_second": compared.full_rate,
        "live": side(&compared.live),
        "simulated": side(&compared.simulated),
        "simulated_over_live": ratios,
    })
}
