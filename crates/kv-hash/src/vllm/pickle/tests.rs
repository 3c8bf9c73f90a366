//! The encoder against a small decoder that shares nothing with it.

use proptest::prelude::*;

use super::*;

#[path = "../../../tests/support/unpickle.rs"]
mod unpickle;

use unpickle::{Object, decode};

fn write(out: &mut Pickle<'_>, object: &Object) {
    match object {
        Object::None => out.none(),
        Object::Int(n) => match (u64::try_from(*n), i64::try_from(*n)) {
            (Ok(n), _) => out.uint(n),
            (_, Ok(n)) => out.int(n),
            _ => panic!("not a 64-bit integer: {n}"),
        },
        Object::Bytes(bytes) => out.bytes(bytes),
        Object::Text(text) => out.text(text, Sharing::Own),
        Object::Tuple(items) => {
            out.begin_tuple(items.len());
            items.iter().for_each(|item| write(out, item));
            out.end_tuple(items.len());
        }
    }
}

fn encoded(write: impl FnOnce(&mut Pickle<'_>)) -> Vec<u8> {
    let (mut buffer, mut seen) = (Buffer::default(), Vec::new());
    let mut out = Pickle::new(&mut buffer, &mut seen);
    write(&mut out);
    out.finish();
    buffer.as_slice().to_vec()
}

fn integers() -> impl Strategy<Value = i128> {
    let edges = prop::sample::select(vec![256i128, 65_536, 1 << 31, 1 << 32, 1 << 39, 1 << 63]);
    let near = (edges, -2i128..=2, any::<bool>()).prop_map(|(edge, d, negative)| {
        let n = edge + d;
        if negative { (-n).max(i64::MIN.into()) } else { n.min(u64::MAX.into()) }
    });
    prop_oneof![near, any::<i64>().prop_map(i128::from), any::<u64>().prop_map(i128::from)]
}

fn objects() -> impl Strategy<Value = Object> {
    let sizes = || prop_oneof![10 => 0usize..300, 1 => 65_530usize..65_540];
    let leaf = prop_oneof![
        Just(Object::None),
        integers().prop_map(Object::Int),
        (sizes(), any::<u8>()).prop_map(|(len, fill)| Object::Bytes(vec![fill; len])),
        sizes().prop_map(|len| Object::Text("é".repeat(len / 2) + &"x".repeat(len % 2))),
        ".{0,3}".prop_map(Object::Text),
    ];
    leaf.prop_recursive(3, 300, 30, |inner| {
        prop::collection::vec(inner, 0..30).prop_map(Object::Tuple)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_decoder_reads_back_what_was_written(object in objects()) {
        let bytes = encoded(|out| write(out, &object));
        prop_assert_eq!(decode(&bytes).0, object);
    }

    #[test]
    fn tokens_are_the_integers_one_by_one(
        tokens in prop::collection::vec(any::<u32>(), 0..40),
        repeat in 1usize..1_000,
    ) {
        // Long enough to cross frames: the fast path must cut them where the slow one does.
        let tokens: Vec<u32> = tokens.iter().copied().cycle().take(tokens.len() * repeat).collect();
        let fast = encoded(|out| {
            out.begin_tuple(tokens.len());
            out.tokens(&tokens);
            out.end_tuple(tokens.len());
        });
        let slow = encoded(|out| {
            out.begin_tuple(tokens.len());
            tokens.iter().for_each(|&token| out.uint(token.into()));
            out.end_tuple(tokens.len());
        });
        prop_assert!(fast == slow, "{} tokens", tokens.len());
        let ints = tokens.iter().map(|&token| Object::Int(token.into())).collect();
        prop_assert!(decode(&fast).0 == Object::Tuple(ints));
    }

    #[test]
    fn big_integers(bytes in prop::collection::vec(any::<u8>(), 1..16)) {
        let value = bytes.iter().fold(0i128, |n, &b| (n << 8) | i128::from(b));
        let encoded = encoded(|out| out.big_uint(&bytes));
        prop_assert_eq!(decode(&encoded).0, Object::Int(value));
    }
}

#[test]
fn what_is_one_object_is_written_once() {
    use Sharing::{Constant, Own, Shared};
    for (text, sharing, once) in [
        ("mm", Constant, true),
        ("mm", Own, false),
        ("mm", Shared, true),
        ("a", Own, true),
        ("é", Own, true),
        ("", Own, true),
        ("ab", Own, false),
        ("本", Own, false),
    ] {
        let bytes = encoded(|out| {
            out.begin_tuple(2);
            out.text(text, sharing);
            out.text(text, sharing);
            out.end_tuple(2);
        });
        let (object, gets) = decode(&bytes);
        let text = Object::Text(text.to_owned());
        assert_eq!(object, Object::Tuple(vec![text.clone(), text]));
        assert_eq!(gets, usize::from(once), "{sharing:?} {object:?}");
    }
    // A constant and a request's string are never one object.
    let bytes = encoded(|out| {
        out.begin_tuple(2);
        out.text("mm", Constant);
        out.text("mm", Shared);
        out.end_tuple(2);
    });
    assert_eq!(decode(&bytes).1, 0);
}

#[test]
fn references_beyond_255() {
    let bytes = encoded(|out| {
        out.begin_tuple(302);
        (0..300).for_each(|i| out.text(&format!("text {i}"), Sharing::Own));
        out.text("late", Sharing::Shared);
        out.text("late", Sharing::Shared);
        out.end_tuple(302);
    });
    let (object, gets) = decode(&bytes);
    assert_eq!(gets, 1);
    let Object::Tuple(items) = object else { panic!("not a tuple") };
    assert_eq!(items[301], Object::Text("late".into()));
}

/// `chr(n) is chr(n)` holds in `CPython` below 256 only.
#[test]
fn strings_that_are_one_object_by_their_value() {
    for (value, one) in [
        ("", true),
        ("a", true),
        ("\u{ff}", true),
        ("\u{100}", false),
        ("\u{20ac}", false),
        ("aa", false),
        ("\u{ff}a", false),
    ] {
        assert_eq!(is_one_object(value), one, "{value:?}");
    }
}
