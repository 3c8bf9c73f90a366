//! Arguments of `kvasirctl simulate` for fleets that serve requests in two legs.

use std::str::FromStr;

use kvasir_sim::{Fleet, Split};

use super::{SimulateArgs, not_negative, positive};

/// Prefill and decode replicas.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Prefill and decode")]
pub(crate) struct SplitArgs {
    /// Prefill and decode replicas, beside `--replicas` unified ones: `4:4`; or with a number of unified
    /// ones of its own: `2:2+4`; or unified ones alone: `8`. Several, with commas or given several times,
    /// are compared under the same policies and arrivals.
    #[arg(long, value_name = "P:D[+U]", value_delimiter = ',')]
    split: Vec<Asked>,
    /// What handing over a prompt takes however little it is, in milliseconds. Gateways are told.
    #[arg(long, value_name = "MS", default_value_t = transfer_ms(), value_parser = not_negative)]
    transfer_ms: f64,
    /// Tokens of a prompt handed over per second. Gateways are told, and learn it from answers.
    #[arg(long, value_name = "N", default_value_t = Split::default().transfer_rate,
          value_parser = positive)]
    transfer_tokens_per_s: f64,
    /// Gateways are not told how long handing over takes: they begin with the defaults.
    #[arg(long)]
    untold_transfers: bool,
}

/// A fleet as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    prefill: usize,
    decode: usize,
    /// `None`: as many as there are anyway.
    unified: Option<usize>,
}

fn transfer_ms() -> f64 {
    Split::default().transfer_time.as_secs_f64() * 1_000.0
}

impl FromStr for Asked {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "expected P:D, P:D+U or U, as 4:4, 2:2+4 or 8";
        let count = |text: &str| text.trim().parse::<usize>().map_err(|_| FORM);
        let Some((prefill, rest)) = text.split_once(':') else {
            return Ok(Self { prefill: 0, decode: 0, unified: Some(count(text)?) });
        };
        let (decode, unified) = match rest.split_once('+') {
            Some((decode, unified)) => (decode, Some(count(unified)?)),
            None => (rest, None),
        };
        Ok(Self { prefill: count(prefill)?, decode: count(decode)?, unified })
    }
}

impl SimulateArgs {
    /// The fleets to compare, at least one.
    pub(crate) fn fleets(&self) -> Vec<Fleet> {
        const REPLICAS: usize = 8;
        if self.split.split.is_empty() {
            let unified = self.replicas.unwrap_or(REPLICAS);
            return vec![Fleet { unified, ..Fleet::default() }];
        }
        let beside = self.replicas.unwrap_or(0);
        let fleet = |asked: &Asked| {
            let Asked { prefill, decode, unified } = *asked;
            Fleet { prefill, decode, unified: unified.unwrap_or(beside) }
        };
        self.split.split.iter().map(fleet).collect()
    }

    /// How prompts are handed over.
    pub(crate) fn hand_over(&self) -> Split {
        let SplitArgs { transfer_ms, transfer_tokens_per_s, untold_transfers, .. } = self.split;
        Split {
            transfer_time: super::seconds(transfer_ms / 1_000.0),
            transfer_rate: transfer_tokens_per_s,
            told: !untold_transfers,
            ..Split::default()
        }
    }
}
