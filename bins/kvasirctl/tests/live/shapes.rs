//! Requests of every shape that a text model serves, each unlike the others.

use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

const FRAGMENTS: [&str; 32] = [
    "the quick brown fox",
    " jumps",
    "\n",
    "  ",
    "\t",
    "Grüße aus Köln",
    "人工智能模型",
    "日本語の文",
    "👩‍👩‍👧‍👦",
    "🇩🇪",
    "e\u{301}te\u{301}",
    "\u{a0}",
    "\u{fb01}",
    "12345 67",
    "3.14159",
    "-1e-9",
    "don't",
    "I'LL",
    "fn main() {\n    let x = 3;\n}",
    "{\"a\": [1, null]}",
    "<|im_end|>",
    "<|im_start|>user\n",
    "<|endoftext|>",
    "</s>",
    "مرحبا",
    "שלום",
    "\r\n\r\n",
    "...",
    "a very long line of words that goes on",
    "https://example.org/x?y=1&z=%20",
    "\u{200b}",
    "ÀÉÎ",
];

/// A small generator: the same requests in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    /// Begins unlike any other, so that its blocks are stored.
    fn text(&mut self, fragments: usize) -> String {
        let mut text = format!("{:x} ", self.below(usize::from(u16::MAX)));
        for _ in 0..fragments {
            text.push_str(FRAGMENTS[self.below(FRAGMENTS.len())]);
            if self.below(3) > 0 {
                text.push(' ');
            }
        }
        text
    }

    fn turns(&mut self, parts: bool) -> Vec<Value> {
        let mut turns = Vec::new();
        if self.below(2) == 0 {
            turns.push(json!({"role": "system", "content": self.text(6)}));
        }
        let asked = 1 + self.below(3);
        for at in 0..asked {
            if at > 0 {
                turns.push(json!({"role": "assistant", "content": self.text(8)}));
            }
            let content = if parts && self.below(3) == 0 {
                let part = |text: String| json!({"type": "text", "text": text});
                json!([part(self.text(9)), part(self.text(5))])
            } else {
                json!(self.text(16))
            };
            turns.push(json!({"role": "user", "content": content}));
        }
        turns
    }

    fn chat(&mut self) -> Value {
        let mut messages = self.turns(true);
        match self.below(5) {
            0 => {
                messages.push(json!({"role": "assistant", "content": self.text(4)}));
                json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": true})
            }
            1 => json!({"messages": messages, "add_generation_prompt": false}),
            2 => json!({"messages": messages, "chat_template_kwargs": {"enable_thinking": false}}),
            3 => json!({"messages": messages, "temperature": 0.0, "seed": 3, "stop": ["x"]}),
            _ => json!({"messages": messages}),
        }
    }

    fn responses(&mut self) -> Value {
        match self.below(3) {
            0 => json!({"input": self.text(24)}),
            1 => json!({"input": self.text(16), "instructions": self.text(8)}),
            _ => {
                let mut turns = self.turns(false);
                turns.retain(|turn| turn["role"] != "assistant");
                json!({"input": turns})
            }
        }
    }

    fn messages(&mut self) -> Value {
        let mut messages = self.turns(true);
        messages.retain(|message| message["role"] != "system");
        match self.below(2) {
            0 => json!({"messages": messages, "system": self.text(6)}),
            _ => json!({"messages": messages}),
        }
    }
}

/// So many requests.
pub(crate) fn requests(count: usize) -> Vec<(&'static str, Value)> {
    let mut dice = Dice(7);
    let one = |at: usize| {
        let (path, mut body) = match at % 10 {
            0 | 1 => (COMPLETIONS, json!({"prompt": dice.text(28)})),
            2 => {
                let ids: Vec<usize> = (0..70 + dice.below(80)).map(|_| dice.below(4_000)).collect();
                (COMPLETIONS, json!({"prompt": ids}))
            }
            3 => (
                COMPLETIONS,
                json!({"prompt": [dice.text(30)], "echo": false, "add_special_tokens": false}),
            ),
            4..=7 => (CHAT, dice.chat()),
            8 => (RESPONSES, dice.responses()),
            _ => (MESSAGES, dice.messages()),
        };
        body["model"] = "tiny".into();
        let most = if path == RESPONSES { "max_output_tokens" } else { "max_tokens" };
        body[most] = 1.into();
        (path, body)
    };
    (0..count).map(one).collect()
}

/// The question to `/tokenize` that stands for a request; `None` where it takes no such shape.
pub(crate) fn to_tokenize(path: &str, body: &Value) -> Option<Value> {
    let mut question = json!({"model": body["model"]});
    let keep: &[&str] = match path {
        COMPLETIONS => &["prompt", "add_special_tokens"],
        CHAT => {
            &["messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"]
        }
        _ => return None,
    };
    for key in keep {
        if let Some(value) = body.get(*key) {
            question[*key] = value.clone();
        }
    }
    if let Some([only]) = body["prompt"].as_array().map(Vec::as_slice) {
        question["prompt"] = only.clone();
    }
    (path != COMPLETIONS || question["prompt"].is_string()).then_some(question)
}

/// Whether `kvasirctl record` sends requests to this path.
pub(crate) fn is_recorded(path: &str) -> bool {
    path == COMPLETIONS || path == CHAT
}

/// The engine's count of the prompt's tokens, whatever the shape calls it. Anthropic's leaves out
/// what was cached or is cached now.
pub(crate) fn counted(usage: &Value) -> Option<u64> {
    let number = |key: &str| usage[key].as_u64();
    let parts = ["cache_read_input_tokens", "cache_creation_input_tokens"];
    let apart: u64 = parts.into_iter().filter_map(number).sum();
    number("prompt_tokens").or_else(|| Some(number("input_tokens")? + apart))
}
