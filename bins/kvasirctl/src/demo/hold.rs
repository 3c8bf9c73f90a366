//! What to try while the demonstration is held.

use std::io::{Write as _, stderr};

use anyhow::Result;

use super::stage::Stage;

/// Long enough for some blocks; no character of it means anything to a shell or to JSON.
const PROMPT: &str = "A lighthouse keeper writes down every ship that passes: the hour, the flag, \
    the weather and the course. In winter the nights are long and the list is short, in summer it \
    is the other way round. After forty years there are three shelves full of books. Which ships \
    came back, which never did, and what would you ask the keeper first?";

/// Says where the gateway is and how to ask it; on standard error where standard output is for
/// JSON alone.
pub(super) fn invite(stage: &Stage, json: bool) -> Result<()> {
    let text: String =
        stage.targets().iter().map(|target| invitation(&target.url, &target.model)).collect();
    if json {
        stderr().lock().write_all(text.as_bytes())?;
    } else {
        crate::output::write(&text)?;
    }
    Ok(())
}

fn invitation(url: &str, model: &str) -> String {
    format!(
        "\nA gateway under `latency` is at {url} until Ctrl-C. Ask it this twice, and compare\n\
         the x-kvasir-reason of both answers:\n\n\
         curl -isS {url}/v1/chat/completions -H 'content-type: application/json' -d '{{\"model\":\
         \"{model}\",\"max_tokens\":16,\"messages\":[{{\"role\":\"user\",\"content\":\"{PROMPT}\"\
         }}]}}'\n\n\
         What it knows of its engines, and whether it is ready:\n\n\
         curl -sS {url}/metrics\n\
         curl -sS {url}/readyz\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_json_and_survives_a_shell() {
        let text = invitation("http://127.0.0.1:1", "kvasir-demo");
        let (_, rest) = text.split_once("-d '").unwrap();
        let (body, _) = rest.split_once('\'').unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["model"], "kvasir-demo");
        assert_eq!(body["messages"][0]["content"], PROMPT);
    }
}
