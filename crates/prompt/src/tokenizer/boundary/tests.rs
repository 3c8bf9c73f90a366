use super::*;

fn token(text: &str) -> AddedToken {
    AddedToken::from(text, true)
}

fn boundaries(tokens: &[AddedToken]) -> Boundaries {
    let added: Vec<(u32, AddedToken)> = (100..).zip(tokens.iter().cloned()).collect();
    Boundaries::new(&added, false)
}

fn texts(tokens: &[AddedToken]) -> Vec<String> {
    boundaries(tokens).tokens.iter().map(|(t, _)| t.to_string()).collect()
}

#[test]
fn plain_special_tokens_are_boundaries() {
    assert_eq!(texts(&[token("<|a|>"), token("<|b|>")]), ["<|a|>", "<|b|>"]);
    // Matched only as a whole word, or with what stands behind it, or in the normalised text.
    let bad = [
        token("<w>").single_word(true),
        token("<r>").rstrip(true),
        token("<n>").normalized(true),
        token(" <s>"),
        token("<s> "),
        token("<"),
        token(""),
    ];
    assert_eq!(texts(&bad), [""; 0]);
    assert_eq!(texts(&[token("<l>").lstrip(true)]), ["<l>"]);
}

#[test]
fn a_token_that_another_can_swallow_or_cut_is_none() {
    // Part of another: at its start, in its middle, at its end.
    for other in ["<a>x", "x<a>x", "x<a>"] {
        assert_eq!(texts(&[token("<a>"), token(other)]).iter().filter(|t| *t == "<a>").count(), 0);
    }
    // Another one that starts earlier takes its beginning.
    assert_eq!(texts(&[token("<a>"), token("xx<")]), ["xx<"]);
    assert_eq!(texts(&[token("<a>"), token("x<a").rstrip(true)]), [""; 0]);
    // Its own beginning is its end: "<><><>" holds it at 0 or at 2.
    assert_eq!(texts(&[token("<><>")]), [""; 0]);
    // What starts inside it comes too late.
    assert_eq!(texts(&[token("<a>"), token(">b").rstrip(true)]), ["<a>"]);
    // A shorter one loses where both start, and comes too late inside.
    assert_eq!(texts(&[token("<a>"), token("<"), token("a").single_word(true)]), ["<a>"]);
    // Tokens of the normalised text do not touch the raw text.
    assert_eq!(texts(&[token("<a>"), token("<a>b").normalized(true)]), ["<a>"]);
}

#[test]
fn special_tokens_are_none_where_they_are_split() {
    let added = [(1, token("<a>")), (2, AddedToken::from("<b>", false).normalized(false))];
    let found = Boundaries::new(&added, true);
    assert_eq!((found.len(), &*found.tokens[0].0), (1, "<b>"));
}

#[test]
fn the_next_boundary_is_the_first_that_ends_late_enough() {
    let found = boundaries(&[token("<a>"), token("[b]"), token("{longer}")]);
    let text = "<a>xx[b]<a><a{longer}[b";
    let all = |min: usize| found.next(text, 0, min).map(|b| (b.start, b.end, b.id));
    assert_eq!(all(0), Some((0, 3, 100)));
    assert_eq!(all(3), Some((0, 3, 100)));
    assert_eq!(all(4), Some((5, 8, 101)));
    assert_eq!(all(8), Some((5, 8, 101)));
    assert_eq!(all(9), Some((8, 11, 100)));
    assert_eq!(all(12), Some((13, 21, 102)));
    assert_eq!(all(22), None);
    assert_eq!(all(1000), None);
    assert_eq!(found.next(text, 6, 6).map(|b| b.start), Some(8));
    assert_eq!(found.next("", 0, 0), None);
    assert_eq!(Boundaries::default().next(text, 0, 0), None);
}

#[test]
fn thousands_of_tokens_are_checked_in_little_time() {
    let tokens: Vec<AddedToken> =
        (0..6000).map(|n| token(&format!("<｜place▁holder▁no▁{n}｜>"))).collect();
    let start = std::time::Instant::now();
    assert_eq!(boundaries(&tokens).len(), 6000);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
