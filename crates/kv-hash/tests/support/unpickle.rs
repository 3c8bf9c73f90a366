//! A reader of pickles, for what block hashes use. It shares nothing with the encoder.

#![allow(clippy::unwrap_used, reason = "test helpers")]

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
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

/// The object, and how many references to earlier objects its pickle has.
pub(crate) fn decode(input: &[u8]) -> (Object, usize) {
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
        // A frame of less than four bytes is none (Python's `_FRAME_SIZE_MIN`), as of an empty text alone.
        let outside = self.frame.is_none();
        assert!(
            if len >= 65_536 { outside } else { !outside || len < 4 },
            "{len} bytes, {outside}"
        );
        let payload = self.bytes(len);
        if bytes {
            Object::Bytes(payload)
        } else {
            Object::Text(String::from_utf8(payload).unwrap())
        }
    }
}
