use std::path::Path;

use super::*;

fn renderer() -> Renderer {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/models/tiny");
    Renderer::load(&dir).unwrap()
}

fn chat(system: &str, user: &str) -> Vec<u8> {
    let messages = [("system", system), ("user", user)];
    let message =
        |(role, content): (&str, &str)| serde_json::json!({"role": role, "content": content});
    let messages: Vec<_> = messages.into_iter().map(message).collect();
    serde_json::to_vec(&serde_json::json!({"model": "m", "messages": messages})).unwrap()
}

/// `None` where something is left to do.
fn done(quick: Quick) -> Option<Result<Prompts, Unrouted>> {
    if let Quick::Done(done) = quick { Some(done) } else { None }
}

#[test]
fn a_chat_is_quick_once_all_but_a_little_of_it_is_known() {
    let renderer = renderer();
    let system = "some words of a long beginning ".repeat(300);
    let first = chat(&system, "one");
    let Quick::Rest(rest) = renderer.quickly(Api::Chat, &first, None) else {
        panic!("9 KB were tokenized at once");
    };
    let (_, before) = renderer.cache();
    assert_eq!((before.hits, before.misses), (0, 0), "a text that was left does not count");
    let whole = self::renderer().prompts(Api::Chat, &first).unwrap();
    assert_eq!(renderer.the_rest(rest, Api::Chat, &first, None), Ok(whole.clone()));
    assert_eq!(done(renderer.quickly(Api::Chat, &first, None)), Some(Ok(whole)));

    // Little is new, or much.
    let second = chat(&system, "another question");
    let whole = self::renderer().prompts(Api::Chat, &second).unwrap();
    assert_eq!(done(renderer.quickly(Api::Chat, &second, None)), Some(Ok(whole)));
    let third = chat(&system, &"x y z ".repeat(1_000));
    assert!(done(renderer.quickly(Api::Chat, &third, None)).is_none());
    // What is known is known to those of the same salt.
    assert!(done(renderer.quickly(Api::Chat, &second, Some("s"))).is_none());
}

#[test]
fn what_is_large_or_of_another_kind_is_left_whole() {
    let renderer = renderer();
    let large = chat(&"a b ".repeat(10_000), "one");
    let prompt = "p q ".repeat(1_000);
    let completion = serde_json::to_vec(&serde_json::json!({"prompt": prompt})).unwrap();
    for (api, body) in [(Api::Chat, large), (Api::Completions, completion)] {
        let Quick::Rest(rest) = renderer.quickly(api, &body, None) else {
            panic!("{api:?} was done");
        };
        assert!(rest.0.is_none());
        let whole = self::renderer().prompts(api, &body);
        assert_eq!(renderer.the_rest(rest, api, &body, None), whole);
    }
}

#[test]
fn errors_are_those_of_the_whole() {
    let renderer = renderer();
    let mut body = chat(&"a b ".repeat(1_000), "one");
    body.truncate(body.len() - 2);
    let whole = renderer.prompts(Api::Chat, &body);
    assert!(whole.is_err());
    assert_eq!(done(renderer.quickly(Api::Chat, &body, None)), Some(whole));
}
