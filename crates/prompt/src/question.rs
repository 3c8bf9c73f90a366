//! Questions to an engine's `/tokenize` about the prompt of a request.

use std::collections::HashMap;

use crate::{Api, json};

/// Fields of a completions request that the question takes over.
const OF_TEXT: [&str; 2] = ["prompt", "add_special_tokens"];
/// The same of a chat.
const OF_CHAT: [&str; 6] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template_kwargs",
];
/// Fields that change a prompt and that `/tokenize` does not take.
const NOT_TAKEN: [&str; 10] = [
    "truncate_prompt_tokens",
    "prompt_embeds",
    "suffix",
    "documents",
    "reasoning_effort",
    "chat_template",
    "kv_transfer_params",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "previous_response_id",
];

/// The body of a `POST /tokenize` (vLLM 0.32, SGLang) that asks for the tokens of a request's
/// prompt, with the request's own spelling of its fields. `None` where that cannot be asked: for
/// other APIs, prompts given as ids, several prompts, and fields `/tokenize` does not take.
#[must_use]
pub fn tokenize_question(api: Api, body: &[u8], model: &str) -> Option<Vec<u8>> {
    let taken: &[&str] = match api {
        Api::Completions => &OF_TEXT,
        Api::Chat => &OF_CHAT,
        _ => return None,
    };
    let text = std::str::from_utf8(body).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut fields: HashMap<&str, &str> = HashMap::new();
    let mut refused = false;
    json::top_level(text, |key, value| {
        let is_given = value != "null";
        // An engine may be told to drop the tools for this.
        let drops_tools = key == "tool_choice" && value == r#""none""#;
        refused |= (NOT_TAKEN.contains(&key) && is_given) || drops_tools;
        if let Some(name) = taken.iter().find(|name| **name == key) {
            fields.insert(name, value);
        }
        Ok(())
    })
    .ok()?;
    let asked = fields.get(taken.first()?)?;
    if refused || (api == Api::Completions && !asked.starts_with('"')) {
        return None;
    }
    let mut question = String::with_capacity(text.len() + model.len());
    question.push_str("{\"model\":");
    json::write_string(model, false, &mut question);
    for name in taken {
        if let Some(value) = fields.get(name).filter(|value| **value != "null") {
            question.push_str(",\"");
            question.push_str(name);
            question.push_str("\":");
            question.push_str(value);
        }
    }
    question.push('}');
    Some(question.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(api: Api, body: &str) -> Option<String> {
        tokenize_question(api, body.as_bytes(), "a \"m\"")
            .map(|question| String::from_utf8(question).unwrap())
    }

    #[test]
    fn fields_are_taken_over_as_they_are_spelled() {
        assert_eq!(
            asked(Api::Completions, r#"{"prompt":"x","n":3, "prompt" : "\u0061b" ,"top_p":1}"#),
            Some(r#"{"model":"a \"m\"","prompt":"\u0061b"}"#.to_owned())
        );
        assert_eq!(
            asked(
                Api::Chat,
                r#"{"tools":[{"a":1e400}],"messages":[{ }],"documents":null,"stream":true,
                    "add_generation_prompt":false,"chat_template_kwargs":{"x":NaN}}"#
            ),
            Some(
                r#"{"model":"a \"m\"","messages":[{ }],"tools":[{"a":1e400}],"add_generation_prompt":false,"chat_template_kwargs":{"x":NaN}}"#
                    .to_owned()
            )
        );
    }

    #[test]
    fn what_tokenize_does_not_take_is_not_asked() {
        for (api, body) in [
            (Api::Completions, r#"{"prompt":[1,2]}"#),
            (Api::Completions, r#"{"prompt":["a"]}"#),
            (Api::Completions, r#"{"prompt":"a","truncate_prompt_tokens":3}"#),
            (Api::Completions, r#"{"model":"m"}"#),
            (Api::Completions, r#"{"prompt":"a""#),
            (Api::Chat, r#"{"messages":[],"reasoning_effort":"low"}"#),
            (Api::Chat, r#"{"messages":[],"tools":[],"tool_choice":"none"}"#),
            (Api::Responses, r#"{"input":"a"}"#),
        ] {
            assert_eq!(asked(api, body), None, "{body}");
        }
    }
}
