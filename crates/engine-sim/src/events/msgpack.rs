//! A `MessagePack` writer: the shortest form of everything, as `msgspec` writes it.

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn nil(&mut self) {
        self.0.push(0xc0);
    }

    pub(super) fn float(&mut self, value: f64) {
        self.put(0xcb, &value.to_be_bytes());
    }

    pub(super) fn uint(&mut self, value: u64) {
        match value {
            0..=0x7f => self.0.push(value as u8),
            0x80..=0xff => self.put(0xcc, &(value as u8).to_be_bytes()),
            0x100..=0xffff => self.put(0xcd, &(value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.put(0xce, &(value as u32).to_be_bytes()),
            _ => self.put(0xcf, &value.to_be_bytes()),
        }
    }

    pub(super) fn int(&mut self, value: i64) {
        match value {
            0.. => self.uint(value as u64),
            -0x20..=-1 => self.0.push(value as u8),
            -0x80..=-0x21 => self.put(0xd0, &(value as i8).to_be_bytes()),
            -0x8000..=-0x81 => self.put(0xd1, &(value as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.put(0xd2, &(value as i32).to_be_bytes()),
            _ => self.put(0xd3, &value.to_be_bytes()),
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        match text.len() {
            length @ 0..=31 => self.0.push(0xa0 | length as u8),
            length => self.sized([0xd9, 0xda, 0xdb], length),
        }
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.sized([0xc4, 0xc5, 0xc6], bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn array(&mut self, length: usize) {
        match length {
            0..=15 => self.0.push(0x90 | length as u8),
            16..=0xffff => self.put(0xdc, &(length as u16).to_be_bytes()),
            _ => self.put(0xdd, &(length as u32).to_be_bytes()),
        }
    }

    /// The header of a map of at most 65,535 pairs, in its 3-byte form if `wide`.
    pub(super) fn map(&mut self, length: usize, wide: bool) {
        match length {
            0..=15 if !wide => self.0.push(0x80 | length as u8),
            _ => self.put(0xde, &(length as u16).to_be_bytes()),
        }
    }

    fn put(&mut self, code: u8, bytes: &[u8]) {
        self.0.push(code);
        self.0.extend_from_slice(bytes);
    }

    fn sized(&mut self, [short, medium, long]: [u8; 3], length: usize) {
        match length {
            0..=0xff => self.put(short, &(length as u8).to_be_bytes()),
            0x100..=0xffff => self.put(medium, &(length as u16).to_be_bytes()),
            _ => self.put(long, &(length as u32).to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn integers_take_their_shortest_form() {
        let cases: [(i64, &[u8]); 14] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0xcc, 0x80]),
            (256, &[0xcd, 1, 0]),
            (65_536, &[0xce, 0, 1, 0, 0]),
            (1 << 32, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
            (-1, &[0xff]),
            (-32, &[0xe0]),
            (-33, &[0xd0, 0xdf]),
            (-128, &[0xd0, 0x80]),
            (-129, &[0xd1, 0xff, 0x7f]),
            (-32_769, &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
            (-2_147_483_648, &[0xd2, 0x80, 0, 0, 0]),
            (-2_147_483_649, &[0xd3, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]),
        ];
        for (value, bytes) in cases {
            assert_eq!(written(|w| w.int(value)), bytes, "{value}");
        }
    }

    #[test]
    fn lengths_take_their_shortest_form() {
        assert_eq!(written(|w| w.text(&"x".repeat(31)))[0], 0xbf);
        assert_eq!(written(|w| w.text(&"x".repeat(32)))[..2], [0xd9, 32]);
        assert_eq!(written(|w| w.text(&"x".repeat(256)))[..3], [0xda, 1, 0]);
        assert_eq!(written(|w| w.bytes(&[7; 32]))[..2], [0xc4, 32]);
        assert_eq!(written(|w| w.bytes(&[7; 65_536]))[..5], [0xc6, 0, 1, 0, 0]);
        assert_eq!(written(|w| w.array(16)), [0xdc, 0, 16]);
        assert_eq!(written(|w| w.array(65_536)), [0xdd, 0, 1, 0, 0]);
        assert_eq!(written(|w| w.map(15, false)), [0x8f]);
        assert_eq!(written(|w| w.map(8, true)), [0xde, 0, 8]);
        assert_eq!(written(|w| w.map(16, false)), [0xde, 0, 16]);
    }
}
