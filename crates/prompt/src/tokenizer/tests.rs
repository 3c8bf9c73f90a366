//! Cached ids against uncached ones, for every kind of tokenizer: the cache must change none.

mod head;
pub(super) mod kinds;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use self::kinds::{KINDS, Kind, load};
use super::*;

/// The ids as the library gives them for the whole text.
fn uncached(tokenizer: &Tokenizer, text: &str, special: bool) -> Result<Vec<u32>, String> {
    tokenizer.engines.library.finished_ids(text, special, Truncation::None)
}

/// Text made of what tokenizers treat specially: added tokens and parts of them, white space,
/// characters that normalizers change or join, and words.
fn text(kind: &Kind) -> impl Strategy<Value = String> + use<> {
    let tokens: Vec<String> = kind.tokens.iter().map(|t| (*t).to_owned()).collect();
    let parts = tokens.clone().prop_flat_map_parts();
    let piece = prop_oneof![
        6 => prop::sample::select(tokens),
        2 => parts,
        2 => prop::sample::select(vec![" ", "  ", "\n", "\n\n", "\t", " \r\n ", "\u{a0}", "\u{2028}"])
            .prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "e\u{301}", "\u{301}", "É", "ﬁ", "한", "\u{1112}\u{1161}", "👩\u{200d}🚀", "▁", "<", "|>", "[", "]", "_",
        ])
        .prop_map(str::to_owned),
        4 => "[ -~]{1,12}",
        3 => prop::sample::select(vec!["the quick brown fox ", "hello", "World ", "unaffable", "123456"])
            .prop_map(str::to_owned),
        1 => "\\PC{1,6}",
        // Long enough for a cut.
        1 => "[a-z ]{100,250}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

trait Parts {
    fn prop_flat_map_parts(self) -> BoxedStrategy<String>;
}

impl Parts for Vec<String> {
    /// Beginnings and ends of these texts.
    fn prop_flat_map_parts(self) -> BoxedStrategy<String> {
        (prop::sample::select(self), any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(token, at, head)| {
                let cuts: Vec<usize> =
                    token.char_indices().map(|(i, _)| i).chain([token.len()]).collect();
                let cut = cuts[at.index(cuts.len())];
                let (a, b) = token.split_at(cut);
                if head { a } else { b }.to_owned()
            })
            .boxed()
    }
}

/// Grows a text piece by piece, as a conversation grows, and compares every state.
fn check(tokenizer: &Tokenizer, turns: &[String], salt: Option<&str>) -> Result<(), TestCaseError> {
    let mut text = String::new();
    for turn in turns {
        text.push_str(turn);
        for special in [false, true] {
            let want = uncached(tokenizer, &text, special);
            // In part, it is the same or nothing.
            let most = text.len() / 2;
            let part = tokenizer.encode_within(&text, special, Truncation::None, salt, most);
            if let Some(part) = part.transpose() {
                prop_assert_eq!(&part, &want, "{:?}", text);
            }
            let got = tokenizer.encode(&text, special, Truncation::None, salt);
            prop_assert_eq!(&got, &want, "{:?}", text);
        }
    }
    Ok(())
}

#[test]
fn cached_ids_are_the_uncached_ones() {
    for kind in KINDS {
        // Small enough to evict.
        let tokenizer = load(kind, 64 << 10);
        let (boundaries, _) = tokenizer.cache();
        assert_eq!(boundaries > 0, kind.cacheable, "{}: {boundaries} boundaries", kind.name);
        let engine = tokenizer.engine();
        assert_eq!(engine == TokenizerEngine::ByteLevel, kind.fast, "{}: {engine:?}", kind.name);
        let mut runner = TestRunner::new(Config { cases: 48, ..Config::default() });
        let turns = prop::collection::vec(text(kind), 1..5);
        let salt = prop::option::weighted(0.2, "[ab]");
        let result =
            runner.run(&(turns, salt), |(turns, salt)| check(&tokenizer, &turns, salt.as_deref()));
        let (_, stats) = tokenizer.cache();
        result.unwrap_or_else(|e| panic!("{}: {e}", kind.name));
        assert_eq!(stats.hit_bytes > 0, kind.cacheable, "{}: {stats:?}", kind.name);
    }
}

#[test]
fn every_cut_of_a_text_is_cached_alike() {
    for kind in KINDS.iter().filter(|k| k.cacheable) {
        let tokenizer = load(kind, 16 << 20);
        let filler = "The quick brown fox jumps over the lazy dog, again and again. ".repeat(4);
        let text: String =
            kind.tokens.iter().map(|token| format!("{filler}{token} {filler}{token}x")).collect();
        for end in (0..text.len()).rev().filter(|end| text.is_char_boundary(*end)).step_by(31) {
            let text = &text[..end];
            let got = tokenizer.encode(text, false, Truncation::None, None);
            assert_eq!(got, uncached(&tokenizer, text, false), "{} {end}", kind.name);
        }
    }
}

#[test]
fn truncation_is_the_librarys() {
    for kind in KINDS {
        let tokenizer = load(kind, 1 << 20);
        let text = format!("Hello world, hello. {}{}", "word ".repeat(60), kind.tokens.join(" a "));
        for special in [false, true] {
            for keep in [0, 1, 2, 3, 10, 100_000] {
                for cut in [
                    Truncation::Last { keep },
                    Truncation::SliceLeft { keep },
                    Truncation::SliceRight { keep },
                ] {
                    let want = tokenizer.engines.library.finished_ids(&text, special, cut);
                    let got = tokenizer.encode(&text, special, cut, None);
                    assert_eq!(got, want, "{} {special} {cut:?}", kind.name);
                }
            }
        }
    }
}

#[test]
fn the_second_turn_tokenizes_its_delta() {
    let tokenizer = load(&KINDS[0], 1 << 20);
    let turn =
        |n: usize| format!("<|im_start|>user\nturn {n}, {}<|im_end|>\n", "blah ".repeat(100));
    let mut text = String::new();
    for n in 0..50 {
        text.push_str(&turn(n));
        let before = tokenizer.cache().1;
        let got = tokenizer.encode(&text, false, Truncation::None, None);
        assert_eq!(got, uncached(&tokenizer, &text, false));
        let after = tokenizer.cache().1;
        let missed = after.miss_bytes - before.miss_bytes;
        assert!(missed <= turn(n).len() as u64 + 1, "turn {n}: {missed} bytes");
    }
    // Another salt knows nothing of it.
    let before = tokenizer.cache().1;
    tokenizer.encode(&text, false, Truncation::None, Some("other")).unwrap();
    assert_eq!(tokenizer.cache().1.hit_bytes, before.hit_bytes);
}

#[test]
fn threads_share_a_cache() {
    let tokenizer = load(&KINDS[0], 256 << 10);
    let texts: Vec<String> = (0..40)
        .map(|n| {
            let message = |m: usize| format!("<|im_start|>m {} {m}\n", "word ".repeat(60 + n % 3));
            (0..1 + n % 8).map(message).collect()
        })
        .collect();
    let want: Vec<_> = texts.iter().map(|text| uncached(&tokenizer, text, true).unwrap()).collect();
    std::thread::scope(|scope| {
        for shift in 0..4 {
            let (tokenizer, texts, want) = (&tokenizer, &texts, &want);
            scope.spawn(move || {
                for round in 0..120 {
                    let n = (round * 7 + shift) % texts.len();
                    let got = tokenizer.encode(&texts[n], true, Truncation::None, None).unwrap();
                    assert_eq!(got, want[n]);
                }
            });
        }
    });
    let (_, stats) = tokenizer.cache();
    assert!(stats.bytes <= stats.budget && stats.hit_bytes > 0, "{stats:?}");
}

/// A faster tokenizer that is wrong is found out, and nothing it said stays.
#[test]
fn a_wrong_engine_is_dropped_with_what_it_said() {
    let build = |merges: usize| {
        let mut json = kinds::tiny();
        json["model"]["merges"].as_array_mut().unwrap().truncate(merges);
        serde_json::to_vec(&json).unwrap()
    };
    let mut tokenizer = Tokenizer::from_json(&build(4000), Settings::default(), 1 << 20).unwrap();
    assert_eq!(tokenizer.engine(), TokenizerEngine::ByteLevel);
    let library = Library::from_json(&build(4000), Settings::default()).unwrap();
    let wrong = fast::Fast::new(&build(10), &library.added_tokens(), false).unwrap();
    tokenizer.engines = Engines::with_fast(library, wrong);
    let message =
        |n: usize| format!("<|im_start|>user\n{n} {}<|im_end|>\n", "some words ".repeat(40));
    // The first part is a sample. After that the wrong ids come through until the next one.
    let tried: Vec<String> = (0..600).map(|n| message(0) + &message(n)).collect();
    tokenizer.encode("", false, Truncation::None, None).unwrap();
    let mut wrong = 0;
    for text in &tried {
        let got = tokenizer.encode(text, false, Truncation::None, None);
        let right = got == uncached(&tokenizer, text, false);
        wrong += usize::from(!right);
        assert!(right || !tokenizer.engines.differs());
    }
    assert!(wrong > 0 && tokenizer.engines.differs(), "{wrong} wrong");
    assert!(matches!(tokenizer.engine(), TokenizerEngine::Library(_)));
    for text in &tried {
        let got = tokenizer.encode(text, false, Truncation::None, None);
        assert_eq!(got, uncached(&tokenizer, text, false));
    }
}
