//! W3C Trace Context, level 1: the header `traceparent`.

use http::{HeaderMap, HeaderValue};

use super::TRACEPARENT;

/// `version-trace_id-parent_id-flags` of version 00.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;
/// The trace's id is random (level 2): passed on.
const RANDOM: u8 = 2;

/// The trace a request belongs to, and the span above ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    /// Never 0.
    pub(super) trace_id: u128,
    /// `None` where the trace begins here; never 0.
    pub(super) parent: Option<u64>,
    flags: u8,
}

impl Context {
    /// The client's. One that cannot be read is none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value),
            _ => None,
        }
    }

    /// A new trace of these random bits, if it is sampled: if its low 56 bits are below `threshold`.
    pub(super) fn fresh(bits: u128, threshold: u64) -> Option<Self> {
        let low = bits as u64 & ((1 << 56) - 1);
        (low < threshold).then_some(Self { trace_id: bits.max(1), parent: None, flags: SAMPLED })
    }

    fn parse(value: &HeaderValue) -> Option<Self> {
        let text = value.as_bytes();
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let [version, trace_id, parent, flags] = fields(known)?;
        let version = hex(version)?;
        // Later versions may add fields, none of which changes these.
        let fits = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => matches!(rest.first(), None | Some(b'-')),
        };
        let (trace_id, parent) = (hex(trace_id)?, hex(parent)? as u64);
        let flags = hex(flags)? as u8;
        let is_whole = fits && trace_id != 0 && parent != 0;
        is_whole.then_some(Self { trace_id, parent: Some(parent), flags })
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// What a server is told whose span is a child of `span`.
    pub(super) fn header(&self, span: u64) -> String {
        let flags = self.flags & (SAMPLED | RANDOM);
        format!("00-{:032x}-{span:016x}-{flags:02x}", self.trace_id)
    }
}

/// The four fields, by their lengths.
fn fields(text: &[u8]) -> Option<[&[u8]; 4]> {
    let mut fields = text.split(|byte| *byte == b'-');
    let all = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    let fit = all.map(<[u8]>::len) == [2, 32, 16, 2] && fields.next().is_none();
    fit.then_some(all)
}

/// Hexadecimal digits, of which there are at most 32; lower case only.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |value: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    const PARENT: u64 = 0xb7ad_6b71_6920_3331;

    fn parsed(text: &str) -> Option<Context> {
        let value = HeaderValue::from_str(text).unwrap();
        Context::of(&HeaderMap::from_iter([(TRACEPARENT, value)]))
    }

    #[test]
    fn whole_contexts_are_read() {
        let ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        for (text, flags) in [
            (format!("00-{ids}-01"), 1),
            (format!("00-{ids}-00"), 0),
            (format!("00-{ids}-03"), 3),
            (format!("00-{ids}-ff"), 0xff),
            // Later versions, with and without more fields.
            (format!("01-{ids}-01"), 1),
            (format!("cc-{ids}-00-what-the-future-will-be-like"), 0),
            (format!("fe-{ids}-01-"), 1),
        ] {
            let expected = Context { trace_id: TRACE, parent: Some(PARENT), flags };
            assert_eq!(parsed(&text), Some(expected), "{text}");
            assert_eq!(expected.is_sampled(), flags & 1 == 1);
        }
    }

    #[test]
    fn what_is_not_whole_is_none() {
        let ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        for text in [
            String::new(),
            format!("ff-{ids}-01"),
            format!("00-{ids}-01-more"),
            format!("00-{ids}-01-"),
            format!("01-{ids}-01.more"),
            format!("01-{ids}-012"),
            format!("00-{ids}"),
            format!("00-{ids}-0"),
            format!("00-{ids}-0x"),
            format!("0-{ids}-001"),
            format!("00_{ids}-01"),
            format!("00-{}-01", ids.to_uppercase()),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319gb7ad6b7169203331--01".to_owned(),
        ] {
            assert_eq!(parsed(&text), None, "{text}");
        }
        let value = HeaderValue::from_str(&format!("00-{ids}-01")).unwrap();
        let mut two = HeaderMap::from_iter([(TRACEPARENT, value.clone())]);
        assert!(Context::of(&two).is_some());
        two.append(TRACEPARENT, value);
        assert_eq!(Context::of(&two), None, "two contexts are none");
        assert_eq!(Context::of(&HeaderMap::new()), None);
    }

    #[test]
    fn a_child_is_told_of_its_parent_in_the_version_we_speak() {
        let context = parsed("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-x").unwrap();
        let header = context.header(0xab);
        assert_eq!(header, "00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-03");
        let fresh = Context::fresh(5, 1 << 56).unwrap();
        assert_eq!(fresh.header(7), "00-00000000000000000000000000000005-0000000000000007-01");
        assert_eq!(fresh.parent, None);
        assert_eq!(Context::fresh(5, 5), None);
    }
}
