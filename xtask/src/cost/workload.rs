//! Chat bodies of 8 KB: a shared beginning of three quarters, and a question that is always new.

/// Bytes of a body's two messages.
const SHARED_BYTES: usize = 6 << 10;
const OWN_BYTES: usize = 2 << 10;
/// Words that texts are made of.
const WORDS: usize = 4096;
/// Those of them that make up most of a text.
const COMMON: u64 = 256;
const LETTERS: &[u8; 22] = b"etaoinshrdlcumwfgypbvk";

/// Makes bodies up, the same ones in every run.
pub(super) struct Workload {
    words: Vec<String>,
    shared: Vec<String>,
    random: Random,
    made: usize,
}

impl Workload {
    /// One with this many shared beginnings.
    pub(super) fn new(shared: usize) -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut word = || {
            let len = 2 + random.below(9);
            (0..len).map(|_| char::from(LETTERS[random.below(22) as usize])).collect()
        };
        let words = (0..WORDS).map(|_| word()).collect();
        let mut made = Self { words, shared: Vec::new(), random, made: 0 };
        made.shared = (0..shared).map(|_| made.text(SHARED_BYTES)).collect();
        made
    }

    /// The next body.
    pub(super) fn body(&mut self) -> String {
        self.made += 1;
        let own = self.text(OWN_BYTES);
        let shared = &self.shared[self.made % self.shared.len()];
        // The number first, so that questions differ from their beginning on.
        format!(
            "{{\"model\":\"kvasir-demo\",\"messages\":[{{\"role\":\"system\",\"content\":\"{shared}\"}},\
             {{\"role\":\"user\",\"content\":\"{:06}: {own}\"}}],\"max_tokens\":16,\
             \"temperature\":0.7,\"stream\":false}}",
            self.made
        )
    }

    fn text(&mut self, len: usize) -> String {
        let mut text = String::with_capacity(len + 16);
        while text.len() < len {
            let common = self.random.below(3) > 0;
            let word = self.random.below(if common { COMMON } else { WORDS as u64 });
            text.push_str(&self.words[word as usize]);
            text.push(' ');
        }
        text.truncate(len);
        text
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}
