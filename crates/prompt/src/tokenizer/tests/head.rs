//! Beginnings of texts against the whole, for every kind of tokenizer.

use super::super::head::{Head, SLACK, before_space};
use super::*;

#[test]
fn a_head_is_the_beginning_of_the_whole() {
    for kind in KINDS {
        let tokenizer = load(kind, 64 << 10);
        let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
        let texts = prop::collection::vec(text(kind), 1..12).prop_map(|texts| texts.concat());
        let result = runner.run(&(texts, any::<prop::sample::Index>(), any::<bool>()), |given| {
            let (text, at, special) = given;
            let limit = at.index(text.len() + 1);
            let whole = tokenizer.engines.library.finished_ids(&text, special, Truncation::None);
            let Some(head) = tokenizer.encode_head(&text, limit, special, None).unwrap() else {
                prop_assert!(tokenizer.around.is_none());
                return Ok(());
            };
            prop_assert!(head.bytes <= limit);
            prop_assert!(whole.unwrap().starts_with(&head.ids), "{:?} {}", text, limit);
            Ok(())
        });
        result.unwrap_or_else(|e| panic!("{}: {e}", kind.name));
    }
}

#[test]
fn nearly_all_of_a_long_head_is_known() {
    for kind in KINDS {
        let tokenizer = load(kind, 1 << 20);
        if tokenizer.around.is_none() {
            continue;
        }
        let words = "The quick brown fox jumps over the lazy dog, again and again. ".repeat(400);
        let whole = tokenizer.engines.library.finished_ids(&words, true, Truncation::None).unwrap();
        for limit in [words.len() / 2, words.len() / 2 + 3] {
            let head = tokenizer.encode_head(&words, limit, true, None).unwrap().unwrap();
            assert!(whole.starts_with(&head.ids), "{}", kind.name);
            assert!(head.bytes + 64 > limit, "{}: {}", kind.name, head.bytes);
            // The slack, and as much again for what differs in density.
            let share = whole.len() * limit / words.len();
            assert!(head.ids.len() + 2 * SLACK > share, "{}: {}", kind.name, head.ids.len());
        }
    }
}

#[test]
fn behind_an_added_token_nothing_is_given_up() {
    let tokenizer = load(&KINDS[0], 1 << 20);
    let turn = "<|im_start|>user\nHello there<|im_end|>\n";
    let text = turn.repeat(20);
    let limit = 10 * turn.len() + 15;
    let head = tokenizer.encode_head(&text, limit, false, None).unwrap().unwrap();
    // The last turn has begun.
    assert_eq!(head.bytes, 10 * turn.len() + "<|im_start|>".len());
    let upto = text.get(..head.bytes).unwrap();
    assert_eq!(head.ids, tokenizer.encode(upto, false, Truncation::None, None).unwrap());
}

#[test]
fn plain_heads() {
    let tokenizer = load(&KINDS[0], 1 << 20);
    let words = "many <|im_end|> words that take their time ".repeat(200);
    let whole = tokenizer.encode_plain(&words).unwrap();
    let head = tokenizer.encode_plain_head(&words, words.len() / 2).unwrap();
    assert!(whole.starts_with(&head.ids) && head.ids.len() * 3 > whole.len());
    assert_eq!(tokenizer.encode_plain_head(&words, 0).unwrap(), Head { ids: vec![], bytes: 0 });
}

#[test]
fn a_word_without_end_is_cut_at_the_limit() {
    assert_eq!(before_space("aaaa", 0), 4);
    assert_eq!(before_space("aa bb", 0), 2);
    assert_eq!(before_space("aa  \n", 0), 2);
    assert_eq!(before_space("aa bbb", 3), 6);
    assert_eq!(before_space("", 0), 0);
}
