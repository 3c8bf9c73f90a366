//! The built-in texts and chats whose tokens are compared: what tokenizers and templates get wrong.

use serde_json::{Map, Value, json};

/// One thing to tokenise.
#[derive(Clone, Debug)]
pub struct ProbeCase {
    /// What it is about.
    pub name: &'static str,
    /// The fields of a request, without `model`.
    pub fields: Map<String, Value>,
}

impl ProbeCase {
    /// The text, where it is one.
    #[must_use]
    pub fn prompt(&self) -> Option<&str> {
        self.fields.get("prompt").and_then(Value::as_str)
    }

    /// The body of a request for `model`.
    #[must_use]
    pub fn body(&self, model: &str) -> Vec<u8> {
        let mut body = self.fields.clone();
        body.insert("model".to_owned(), model.into());
        Value::Object(body).to_string().into_bytes()
    }
}

/// Plain texts; `special` are the texts of the model's special tokens.
#[must_use]
pub fn probe_texts(special: &[String]) -> Vec<ProbeCase> {
    let marks =
        if special.is_empty() { "<s></s><|endoftext|>".to_owned() } else { special.concat() };
    let texts: [(&'static str, String); 13] = [
        ("ascii", "The quick brown fox jumps over the lazy dog, doesn't it?".to_owned()),
        ("outer spaces", "  two spaces before, three after   ".to_owned()),
        ("a space", " ".to_owned()),
        ("line ends", "one\ntwo\r\n\r\nthree\n\n".to_owned()),
        ("digits", "0 12 345 6789 1234567890 3.14159 -42 1e-9 20%".to_owned()),
        (
            "code",
            "fn main() {\n    let x: Vec<u8> = vec![0x1f; 3];\n\treturn x != y && !z; // ok\n}\n"
                .to_owned(),
        ),
        ("emoji", "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪 ☃️".to_owned()),
        ("cjk", "人工智能模型。日本語のテキスト、한국어 텍스트".to_owned()),
        ("right to left", "مرحبا بالعالم! שלום עולם 123".to_owned()),
        // Decomposed accents, a ligature, the Ångström sign: normalisation shows here.
        (
            "accents",
            "e\u{301}te\u{301} n\u{303} a\u{323}\u{30a} \u{fb01} \u{212b} naïve".to_owned(),
        ),
        ("odd spaces", "\ta\u{a0}b\u{2003}c\u{200b}d\u{3000}e".to_owned()),
        ("special tokens", format!("{marks}Hello{marks} world{marks}")),
        ("repetition", "The same words again and again. ".repeat(24)),
    ];
    let case = |(name, text): (&'static str, String)| {
        case(name, json!({ "prompt": text, "add_special_tokens": true }))
    };
    texts.into_iter().map(case).collect()
}

/// Conversations.
#[must_use]
pub fn probe_chats() -> Vec<ProbeCase> {
    let user = |text: &str| json!({"role": "user", "content": text});
    let system = json!({"role": "system", "content": "You are terse."});
    let assistant = |text: &str| json!({"role": "assistant", "content": text});
    let weather = user("What is the weather in Köln?");
    let begun = [user("Count to three."), assistant("One, two,")];
    [
        ("one turn", json!({"messages": [user("Hello, who are you?")]})),
        ("system and user", json!({"messages": [system, user("Hello.")]})),
        (
            "several turns",
            json!({"messages": [user("What is 2+2?"), assistant("4."), user("And 3+3?")]}),
        ),
        ("unicode", json!({"messages": [user("Grüße 👩‍👧 人工智能 مرحبا e\u{301}")]})),
        ("outer spaces", json!({"messages": [user("  padded \n\n"), assistant(" yes "), user("ok ")]})),
        (
            "content parts",
            json!({"messages": [{"role": "user", "content": [
                {"type": "text", "text": "First part."}, {"type": "text", "text": "Second part."}]}]}),
        ),
        ("tools", json!({"messages": [weather], "tools": [tool()]})),
        (
            "a tool's call and result",
            json!({"messages": [weather, call(), result(), user("Thanks.")], "tools": [tool()]}),
        ),
        (
            "no generation prompt",
            json!({"messages": [user("Hello."), assistant("Hi.")], "add_generation_prompt": false}),
        ),
        (
            "a final message to continue",
            json!({"messages": begun, "add_generation_prompt": false, "continue_final_message": true}),
        ),
        (
            "template arguments",
            json!({"messages": [user("Think.")], "chat_template_kwargs": {"enable_thinking": false}}),
        ),
    ]
    .into_iter()
    .map(|(name, mut fields)| {
        if let Some(fields) = fields.as_object_mut() {
            fields.entry("add_generation_prompt").or_insert(true.into());
        }
        case(name, fields)
    })
    .collect()
}

fn case(name: &'static str, fields: Value) -> ProbeCase {
    let Value::Object(fields) = fields else { return ProbeCase { name, fields: Map::new() } };
    ProbeCase { name, fields }
}

fn tool() -> Value {
    json!({"type": "function", "function": {
        "name": "get_weather",
        "description": "Current weather at a place",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name, e.g. \"Köln\""},
                           "days": {"type": "integer", "minimum": 1}},
            "required": ["city"]
        }
    }})
}

/// Some templates insist on ids of nine letters and digits.
fn call() -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [{
        "id": "a1b2c3d4e", "type": "function",
        "function": {"name": "get_weather", "arguments": "{\"city\": \"Köln\", \"days\": 2}"}}]})
}

fn result() -> Value {
    json!({"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "{\"celsius\": 7.5, \"sky\": \"☁\"}"})
}
