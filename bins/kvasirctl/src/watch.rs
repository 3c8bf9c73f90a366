//! `kvasirctl watch`: a gateway at a glance, again and again.

use std::io::{IsTerminal as _, stdout};
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use kvasir_admin_client::ApiPath;
use serde_json::{Value, json};

use crate::args::WatchArgs;
use crate::gateway::Gateway;
use crate::gateway::view::{count, list, percent, plain, text as text_at};
use crate::get::{decisions, endpoints, pools};
use crate::output::write;
use crate::{Ended, stop};

/// The terminal's other screen, on which lines are cut instead of broken, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?7l\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?7h\x1b[?1049l";

/// What was seen at one moment.
struct Look {
    /// When the counts were asked for.
    at: Instant,
    pools: Value,
    endpoints: Value,
    stats: Value,
    decisions: Value,
    parity: Value,
}

/// Shows it until SIGINT or SIGTERM, or once.
pub(crate) async fn run(args: WatchArgs) -> Result<Ended> {
    let gateway = Gateway::of(&args.connect)?;
    // What cannot be at all is said before the screen changes.
    let mut look = Look::at(&gateway, args.decisions).await?;
    if args.once {
        write(&look.text(gateway.url(), None))?;
        return Ok(Ended::Done);
    }
    let screen = stdout().is_terminal();
    let mut stopped = pin!(stop::requested()?);
    if screen {
        write(ENTER)?;
    }
    let mut before: Option<Look> = None;
    let ended = loop {
        let frame = look.text(gateway.url(), before.as_ref());
        if let Err(error) = write(&framed(&frame, screen)) {
            break Err(error);
        }
        before = Some(look);
        look = tokio::select! {
            next = next(&gateway, &args, screen) => match next {
                Ok(look) => look,
                Err(error) => break Err(error),
            },
            () = &mut stopped => break Ok(Ended::Done),
        };
    };
    if screen {
        write(LEAVE)?;
    }
    ended
}

/// The next look. A gateway that restarts is waited for, and that is said.
async fn next(gateway: &Gateway, args: &WatchArgs, screen: bool) -> Result<Look> {
    loop {
        tokio::time::sleep(Duration::from_secs(args.interval)).await;
        match Look::at(gateway, args.decisions).await {
            Ok(look) => return Ok(look),
            Err(error) => write(&framed(&format!("{error:#}\n"), screen))?,
        }
    }
}

/// Those of all pools, each with the pool it is of.
fn all_endpoints(pools: &Value) -> Value {
    let of = |pool: &Value| {
        let model = pool["model"].clone();
        let named = move |one: &Value| {
            let mut one = one.clone();
            one["pool"] = model.clone();
            one
        };
        list(pool, "endpoints").iter().map(named).collect::<Vec<Value>>()
    };
    json!({"endpoints": list(pools, "pools").iter().flat_map(of).collect::<Vec<Value>>()})
}

/// On a terminal in the place of the last one, else below it.
fn framed(frame: &str, screen: bool) -> String {
    match screen {
        // Line by line, so that nothing of the last frame is left behind, and nothing flickers.
        true => format!("\x1b[H{}\x1b[J", frame.replace('\n', "\x1b[K\n")),
        false => format!("{frame}\n"),
    }
}

impl Look {
    async fn at(gateway: &Gateway, decisions: u32) -> Result<Self> {
        let latest = ApiPath::of(&["decisions"]).with("limit", &decisions.to_string());
        let pools = gateway.get(&ApiPath::of(&["pools"])).await?;
        Ok(Self {
            endpoints: all_endpoints(&pools),
            pools,
            at: Instant::now(),
            stats: gateway.get(&ApiPath::of(&["stats"])).await?,
            decisions: gateway.get(&latest).await?,
            parity: gateway.get(&ApiPath::of(&["parity"])).await?,
        })
    }

    /// All of it; with what was seen before, also what came since.
    fn text(&self, url: &str, before: Option<&Self>) -> String {
        format!(
            "{url}  {}\n{}\n{}\n{}\n{}\n{}",
            clock(),
            self.hits(before),
            self.problems(),
            pools::table(&self.pools),
            endpoints::table(&self.endpoints),
            decisions::table(&self.decisions),
        )
    }

    /// What is wrong with the gateway itself in full, of pools how much is.
    fn problems(&self) -> String {
        let of_gateway = list(&self.parity, "problems");
        let pools = list(&self.parity, "pools").iter();
        let of_pools: usize = pools.map(|pool| list(pool, "problems").len()).sum();
        let mut text = String::new();
        for one in of_gateway {
            let (cause, finding) = (plain(text_at(one, "cause")), plain(text_at(one, "finding")));
            text.push_str(&format!("{cause}: {finding}\n"));
        }
        if of_pools > 0 {
            let s = if of_pools == 1 { "" } else { "s" };
            text.push_str(&format!("{of_pools} problem{s} of pools: see `kvasirctl doctor`\n"));
        }
        text
    }

    fn hits(&self, before: Option<&Self>) -> String {
        let stats = &self.stats;
        let requests = count(stats, "requests");
        let mut line = format!(
            "{requests} request{}, hit rate {}, of tokens {}",
            if requests == 1 { "" } else { "s" },
            percent(&stats["hit_rate"]),
            percent(&stats["predicted_token_hit_rate"]),
        );
        if let Some(before) = before {
            // Which may be long: a gateway that restarts is waited for.
            let seconds = self.at.duration_since(before.at).as_secs_f64();
            let since = |key: &str| count(stats, key).saturating_sub(count(&before.stats, key));
            let new = since("requests");
            line.push_str(&format!(
                "; last {seconds:.0} s: {new} requests, {} hits",
                since("hits")
            ));
        }
        line
    }
}

/// The time of day, UTC.
fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{:02}:{:02}:{:02} UTC", now / 3600 % 24, now / 60 % 60, now % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_the_time_that_passed() {
        let at = |at: Instant, requests: u64| Look {
            at,
            pools: Value::Null,
            endpoints: Value::Null,
            stats: serde_json::json!({"requests": requests, "hits": requests / 2}),
            parity: Value::Null,
            decisions: Value::Null,
        };
        let first = at(Instant::now(), 10);
        let next = at(first.at + Duration::from_secs(37), 16);
        let line = next.hits(Some(&first));
        assert!(line.ends_with("; last 37 s: 6 requests, 3 hits"), "{line}");
        assert!(!next.hits(None).contains("last"));
    }

    #[test]
    fn frames_take_each_others_place_on_a_terminal_only() {
        assert_eq!(framed("a\nb\n", false), "a\nb\n\n");
        assert_eq!(framed("a\nb\n", true), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
