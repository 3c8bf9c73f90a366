//! `kvasirctl record`: a live engine's traffic, into a file.

use std::fs::{File, remove_file};
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kvasir_doctor::{Prompt, Recorded, Recording, probe_prompts, read_prompts, record};

use crate::args::RecordArgs;
use crate::output::create_private;
use crate::{Ended, engine_origin, say, stop};

/// Records until all is done or SIGINT or SIGTERM comes.
pub(crate) async fn run(args: RecordArgs) -> Result<Ended> {
    let stopped = stop::requested()?;
    let prompts = prompts(&args)?;
    let listen = match args.seconds {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None if prompts.is_empty() => None,
        None => Some(Duration::ZERO),
    };
    let recording = Recording {
        origin: engine_origin::of_url(&args.base_url)?,
        headers: args.headers.iter().cloned().collect(),
        events: args.events.clone(),
        replay: args.replay.clone(),
        topic: args.topic.clone(),
        prompts,
        listen,
    };
    let file = create_private(&args.out)?;
    say(&format!(
        "{} will hold prompts, answers and token ids in plain: look at it before you share it",
        args.out.display()
    ));
    if listen.is_none() {
        say("recording until Ctrl-C");
    }
    let recorded = record(&recording, BufWriter::new(file), stopped).await;
    match recorded {
        Ok(recorded) if recorded.bytes > 0 => {
            say(&summary(&recorded, &args.out));
            Ok(Ended::Done)
        }
        Ok(_) => {
            let _ = remove_file(&args.out);
            Ok(Ended::Interrupted)
        }
        Err(error) => {
            // What was heard until then may tell why; an empty file tells nothing.
            if args.out.metadata().is_ok_and(|file| file.len() == 0) {
                let _ = remove_file(&args.out);
            }
            Err(anyhow!(error).context(args.base_url.to_string()))
        }
    }
}

fn prompts(args: &RecordArgs) -> Result<Vec<Prompt>> {
    if args.probe {
        let nonce = getrandom::u64().context("no randomness for new prompts")?;
        return Ok(probe_prompts(nonce));
    }
    let Some(path) = &args.prompts else { return Ok(Vec::new()) };
    let file = File::open(path).with_context(|| path.display().to_string())?;
    read_prompts(BufReader::new(file)).map_err(|e| anyhow!("{}:{e}", path.display()))
}

fn summary(recorded: &Recorded, out: &Path) -> String {
    let Recorded { messages, replayed, requests, disconnects, bytes, full } = recorded;
    let lost = match disconnects {
        0 => String::new(),
        1 => ", a connection lost".to_owned(),
        many => format!(", {many} connections lost"),
    };
    let full = if *full { "; ended early, as it grew too large" } else { "" };
    format!(
        "{messages} messages, {replayed} replayed, {requests} requests{lost}, {} KiB{full}; read \
         them with: kvasirctl residency --capture {}",
        bytes.div_ceil(1024),
        out.display()
    )
}
