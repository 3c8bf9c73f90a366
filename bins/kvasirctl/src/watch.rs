//! `kvasirctl watch`: a gateway at a glance, again and again.

use std::io::{IsTerminal as _, stdout};
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use kvasir_admin_client::ApiPath;
use serde_json::Value;

use crate::args::WatchArgs;
use crate::gateway::Gateway;
use crate::gateway::view::{count, percent};
use crate::get::{decisions, endpoints, pools};
use crate::output::write;
use crate::{Ended, stop};

/// The terminal's other screen, on which lines are cut instead of broken, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?7l\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?7h\x1b[?1049l";

/// What was seen at one moment.
struct Look {
    pools: Value,
    endpoints: Value,
    stats: Value,
    decisions: Value,
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
        let frame = look.text(gateway.url(), before.as_ref().map(|before| (before, args.interval)));
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
        Ok(Self {
            pools: gateway.get(&ApiPath::of(&["pools"])).await?,
            endpoints: gateway.get(&ApiPath::of(&["endpoints"])).await?,
            stats: gateway.get(&ApiPath::of(&["stats"])).await?,
            decisions: gateway.get(&latest).await?,
        })
    }

    /// All of it; with what was seen so many seconds before, also the rate of requests.
    fn text(&self, url: &str, before: Option<(&Self, u64)>) -> String {
        format!(
            "{url}  {}\n{}\n\n{}\n{}\n{}",
            clock(),
            self.hits(before),
            pools::table(&self.pools),
            endpoints::table(&self.endpoints),
            decisions::table(&self.decisions),
        )
    }

    fn hits(&self, before: Option<(&Self, u64)>) -> String {
        let stats = &self.stats;
        let requests = count(stats, "requests");
        let mut line = format!(
            "{requests} request{}, hit rate {}, of tokens {}",
            if requests == 1 { "" } else { "s" },
            percent(&stats["hit_rate"]),
            percent(&stats["predicted_token_hit_rate"]),
        );
        if let Some((before, seconds)) = before {
            let since = |key: &str| count(stats, key).saturating_sub(count(&before.stats, key));
            let new = since("requests");
            line.push_str(&format!("; last {seconds} s: {new} requests, {} hits", since("hits")));
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
    fn frames_take_each_others_place_on_a_terminal_only() {
        assert_eq!(framed("a\nb\n", false), "a\nb\n\n");
        assert_eq!(framed("a\nb\n", true), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
