//! The encoder against a small decoder that shares nothing with it.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Object {
    None,
    Int(i128),
    Bytes(Vec<u8>),
    Text(String),
    Tuple(Vec<Object>),
}

/// Reads a pickle, and checks its frames: whole opcodes, and no frame closed or left open against
/// the rules.
struct Decoder<'a> {
    input: &'a [u8],
    at: usize,
    /// Start and end of the open frame.
    frame: Option<(usize, usize)>,
    stack: Vec<Object>,
    marks: Vec<usize>,
    memo: Vec<Object>,
    gets: usize,
}

fn decode(input: &[u8]) -> (Object, usize) {
    assert_eq!(&input[..2], [0x80, 5]);
    let mut decoder = Decoder {
        input,
        at: 2,
        frame: None,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        gets: 0,
    };
    while decoder.step() {}
    assert_eq!(decoder.at, input.len(), "bytes after the end");
    assert_eq!(decoder.stack.len(), 1);
    (decoder.stack.remove(0), decoder.gets)
}

impl Decoder<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.bytes(N).try_into().unwrap()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let out = self.input[self.at..self.at + count].to_vec();
        self.at += count;
        out
    }

    /// One opcode; false after the last.
    fn step(&mut self) -> bool {
        if let Some((_, end)) = self.frame {
            assert!(self.at <= end, "an opcode crosses its frame's end");
            if self.at == end {
                self.frame = None;
            }
        }
        let [opcode] = self.take();
        match opcode {
            0x95 => {
                assert_eq!(self.frame, None, "a frame in a frame");
                let len = u64::from_le_bytes(self.take()) as usize;
                assert!(len >= 4, "a frame too short to have a header");
                self.frame = Some((self.at, self.at + len));
            }
            b'.' => return false,
            b'(' => self.marks.push(self.stack.len()),
            b')' => self.stack.push(Object::Tuple(Vec::new())),
            0x85..=0x87 => self.tuple(self.stack.len() - usize::from(opcode - 0x84)),
            b't' => {
                let mark = self.marks.pop().unwrap();
                self.tuple(mark);
            }
            0x94 => self.memo.push(self.stack.last().unwrap().clone()),
            b'h' => {
                let [index] = self.take();
                self.get(index.into());
            }
            b'j' => {
                let index = u32::from_le_bytes(self.take());
                assert!(index > 255, "a long reference to a low number");
                self.get(index as usize);
            }
            _ => self.leaf(opcode),
        }
        true
    }

    fn get(&mut self, index: usize) {
        self.gets += 1;
        self.stack.push(self.memo[index].clone());
    }

    fn tuple(&mut self, start: usize) {
        let items = self.stack.split_off(start);
        self.stack.push(Object::Tuple(items));
    }

    fn leaf(&mut self, opcode: u8) {
        let object = match opcode {
            b'N' => Object::None,
            b'K' => Object::Int(self.take::<1>()[0].into()),
            b'M' => Object::Int(u16::from_le_bytes(self.take()).into()),
            b'J' => Object::Int(i32::from_le_bytes(self.take()).into()),
            0x8a => {
                let [len] = self.take();
                let digits = self.bytes(len.into());
                let negative = digits.last().is_some_and(|top| *top >= 0x80);
                let fill = if negative { 0xff } else { 0 };
                let mut wide = [fill; 16];
                wide[..digits.len()].copy_from_slice(&digits);
                Object::Int(i128::from_le_bytes(wide))
            }
            b'C' | 0x8c => {
                let [len] = self.take();
                self.payload(opcode == b'C', len.into())
            }
            b'B' | b'X' => {
                let len = u32::from_le_bytes(self.take()) as usize;
                self.payload(opcode == b'B', len)
            }
            other => panic!("unknown opcode {other:#x}"),
        };
        self.stack.push(object);
    }

    fn payload(&mut self, bytes: bool, len: usize) -> Object {
        assert_eq!(len >= 65_536, self.frame.is_none(), "large payloads only are outside frames");
        let payload = self.bytes(len);
        if bytes {
            Object::Bytes(payload)
        } else {
            Object::Text(String::from_utf8(payload).unwrap())
        }
    }
}

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
    #![proptest_config(ProptestConfig::with_cases(512))]

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
