//! `kvasirctl explain`: what would be decided about a request now.

mod render;

use std::fs::File;
use std::io::{Read, stdin};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::Method;
use kvasir_admin_client::ApiPath;
use serde_json::{Value, json};

use crate::Ended;
use crate::args::ExplainArgs;
use crate::gateway::Gateway;
use crate::output::print;

/// What the admin API reads of a body.
const MOST_BYTES: u64 = 1 << 20;
const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Asks and prints.
pub(crate) async fn run(args: ExplainArgs) -> Result<Ended> {
    let gateway = Gateway::of(&args.ask.connect)?;
    let (body, path) = request(&args)?;
    let place = ApiPath::of(&["explain"]).with("path", &path);
    let explained = gateway.send(Method::POST, &place, body).await?;
    print(args.ask.print.output, &explained, || render::text_of(&explained))?;
    Ok(Ended::Done)
}

/// The request's body, and the API's path for it.
fn request(args: &ExplainArgs) -> Result<(Bytes, String)> {
    if let (Some(prompt), Some(model)) = (&args.prompt, &args.model) {
        let path = args.path.clone().unwrap_or_else(|| CHAT.to_owned());
        let body = match path == COMPLETIONS {
            true => json!({"model": model, "prompt": prompt}),
            false => json!({"model": model, "messages": [{"role": "user", "content": prompt}]}),
        };
        return Ok((body.to_string().into(), path));
    }
    let Some(file) = &args.file else { bail!("--file or --prompt is needed") };
    let name = file.display().to_string();
    let body = match name == "-" {
        true => read(stdin().lock()).context("standard input")?,
        false => read(File::open(file).context(name.clone())?).context(name)?,
    };
    let path = args.path.clone().unwrap_or_else(|| path_of(&body).to_owned());
    Ok((body.into(), path))
}

fn read(from: impl Read) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    from.take(MOST_BYTES + 1).read_to_end(&mut body)?;
    if body.len() as u64 > MOST_BYTES {
        bail!("it is longer than {MOST_BYTES} bytes, which is all that the admin API reads");
    }
    Ok(body)
}

fn path_of(body: &[u8]) -> &'static str {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_completion = body.get("prompt").is_some() && body.get("messages").is_none();
    if is_completion { COMPLETIONS } else { CHAT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_told_by_the_body() {
        assert_eq!(path_of(br#"{"prompt": [1]}"#), COMPLETIONS);
        assert_eq!(path_of(br#"{"messages": []}"#), CHAT);
        assert_eq!(path_of(b"no JSON"), CHAT);
    }
}
