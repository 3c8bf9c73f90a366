//! The id of a request: the client's, or one made here.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Carries it, in all directions.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest that a client may give.
const LONGEST: usize = 128;

/// The request's id, which is its `x-request-id` from now on: the client's where it gave one that
/// can be passed on, else a new one.
pub(crate) fn of(headers: &mut HeaderMap) -> HeaderValue {
    let mut given = headers.get_all(&REQUEST_ID).iter();
    if let (Some(id), None) = (given.next(), given.next())
        && is_sane(id.as_bytes())
    {
        return id.clone();
    }
    let id = fresh();
    headers.insert(REQUEST_ID, id.clone());
    id
}

/// Whether an id can stand in logs and headers without harm.
fn is_sane(id: &[u8]) -> bool {
    let plain = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'-' | b'_'
                    | b'.'
                    | b':'
                    | b'/'
                    | b'+'
                    | b'='
                    | b'@'
                    | b'#'
                    | b'|'
                    | b'~'
                    | b','
                    | b';'
            )
    };
    (1..=LONGEST).contains(&id.len()) && id.iter().all(plain)
}

/// 128 bits in 32 hexadecimal digits.
fn fresh() -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bits().to_be_bytes()) {
        *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
    }
    // Digits are always a value.
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
}

/// Random bits, without asking the system each time: `SplitMix64` on a state of each thread, beside
/// half of bits that are drawn once a thread, so that no two threads or processes share ids.
pub(crate) fn bits() -> u128 {
    thread_local! {
        // The standard library seeds these from the system.
        static STATE: Cell<(u64, u64)> = Cell::new((seed(), seed()));
    }
    let (fixed, state) = STATE.get();
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set((fixed, state));
    let high = fixed ^ mixed(state ^ fixed.rotate_left(32));
    (u128::from(high) << 64) | u128::from(mixed(state))
}

fn seed() -> u64 {
    RandomState::new().hash_one(std::thread::current().id())
}

/// The output of `SplitMix64`.
fn mixed(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn id(given: &[&'static str]) -> (String, HeaderMap) {
        let mut headers = HeaderMap::new();
        for value in given {
            headers.append(REQUEST_ID, HeaderValue::from_static(value));
        }
        let id = of(&mut headers);
        (id.to_str().unwrap().to_owned(), headers)
    }

    #[test]
    fn a_clients_id_stays_where_it_is_sane() {
        let longest: &str = &"x".repeat(LONGEST);
        for given in ["req-1", "a", "0af7651916cd43dd8448eb211c80319c", "Root=1-67;Self=2@a/b"] {
            let (id, headers) = id(&[given]);
            assert_eq!(id, given);
            assert_eq!(headers[REQUEST_ID], given);
        }
        assert!(is_sane(longest.as_bytes()));
        assert!(!is_sane(format!("{longest}x").as_bytes()));
    }

    #[test]
    fn what_is_not_is_replaced() {
        for given in [&[][..], &[""], &["a b"], &["a\"b"], &["<x>"], &["a\\b"], &["one", "two"]] {
            let (id, headers) = id(given);
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
            let values: Vec<_> = headers.get_all(REQUEST_ID).iter().collect();
            assert_eq!(values, [&*id], "{given:?}");
        }
    }

    #[test]
    fn no_two_are_alike_on_any_thread() {
        let some = || (0..1000).map(|_| bits()).collect::<Vec<u128>>();
        let others: Vec<_> = (0..4).map(|_| std::thread::spawn(some)).collect();
        let mut all = some();
        all.extend(others.into_iter().flat_map(|thread| thread.join().unwrap()));
        let distinct: HashSet<u128> = all.iter().copied().collect();
        assert_eq!(distinct.len(), 5000);
        let halves: HashSet<u64> = all.iter().map(|bits| (bits >> 64) as u64).collect();
        assert_eq!(halves.len(), 5000, "both halves differ");
    }
}
