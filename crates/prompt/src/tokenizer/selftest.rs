//! Does another tokenizer say what the library says?

use std::time::{Duration, Instant};

use super::engine::Encode;
use super::library::Library;

/// How long a comparison may take beyond the fixed texts.
const TIME: Duration = Duration::from_millis(250);
/// Most texts made of pieces.
const MADE: usize = 400;

/// What tokenizers differ in: white space at every place, contractions, case, digits, scripts,
/// marks that join, and what is no letter.
const PIECES: &[&str] = &[
    "the",
    " the",
    "  the",
    "The quick brown fox",
    "don't",
    " we'LL",
    "I'M'd",
    "'",
    "''s",
    "a'b",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    "\r\n",
    "\t",
    "\t\t x",
    " \u{a0} ",
    "\u{3000}",
    "\u{2028}",
    "\u{85}",
    "\u{200b}",
    "0",
    "12",
    "123",
    "1234",
    "1234567",
    "3.14",
    "１２３",
    "²",
    "Ⅷ",
    "x_y",
    "snake_case",
    "camelCase",
    "HTTPServer",
    "fn main() {\n    let x = 1;\n}\n",
    "</div>",
    "!!!",
    "...",
    "—",
    "«»",
    "$100",
    "€",
    "+-*/",
    "\\n",
    "//",
    "#!/usr",
    "{}[]()",
    "a/b/c",
    "ﬁ",
    "é",
    "e\u{301}",
    "\u{301}",
    "ñandú",
    "Ünïcödé",
    "ǅ",
    "ß",
    "İ",
    "ʼn",
    "Ångström",
    "Привет мир",
    "こんにちは世界",
    "カタカナ",
    "中文字符測試",
    "안녕하세요",
    "\u{1112}\u{1161}\u{11ab}",
    "हिन्दी",
    "العربية",
    "ไทย",
    "עברית",
    "👋",
    "👩\u{200d}🚀",
    "🇩🇪",
    "👍🏽",
    "\u{fe0f}",
    "\u{feff}",
    "\u{0}",
    "\u{7f}",
    "\u{fffd}",
    "𝒳",
    "\u{10ffff}",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious",
    "<",
    "|",
    ">",
];

/// Compares on fixed texts, on all `tokens` in context, and on random texts of both, as far as
/// time allows. The error names the text's start.
pub(super) fn compare<'a>(
    library: &Library,
    other: &dyn Encode,
    tokens: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let tokens: Vec<&str> = tokens.take(1 << 16).collect();
    let mut ids = Vec::new();
    let mut check = |text: &str| {
        ids.clear();
        other.append_ids(text, &mut ids)?;
        if library.ids(text)? == ids {
            return Ok(());
        }
        let head: String = text.chars().take(40).collect();
        Err(format!("other ids than the library's for a text that starts with {head:?}"))
    };
    check("")?;
    check(&PIECES.concat())?;
    check(&PIECES.join(" "))?;
    for piece in PIECES {
        check(piece)?;
    }
    let start = Instant::now();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    let mut made = tokens.chunks(8).map(|some| some.join(" x")).collect::<Vec<_>>().into_iter();
    for _ in 0..MADE {
        if start.elapsed() > TIME {
            break;
        }
        let mut text = made.next().unwrap_or_default();
        for _ in 0..random(24) {
            let from: &[&str] = if random(6) == 0 { &tokens } else { PIECES };
            text.push_str(from.get(random(from.len())).copied().unwrap_or_default());
        }
        check(&text)?;
    }
    Ok(())
}
