//! Whether a batch's events are arrays or maps: what decoding leaves out.

/// How an event is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventForm {
    Array,
    Map,
}

/// The form of a batch's first event; `None` if it has none, or is no batch.
pub(super) fn of(payload: &[u8]) -> Option<EventForm> {
    let events = payload.get(header(payload)?..)?;
    let events = events.get(number(events)?..)?;
    let first = events.get(header(events)?..)?.first()?;
    match first {
        0x80..=0x8f | 0xde | 0xdf => Some(EventForm::Map),
        0x90..=0x9f | 0xdc | 0xdd => Some(EventForm::Array),
        _ => None,
    }
}

/// Bytes of an array's header.
fn header(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        0x91..=0x9f => Some(1),
        0xdc => Some(3),
        0xdd => Some(5),
        _ => None,
    }
}

/// Bytes of a number.
fn number(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        0x00..=0x7f | 0xe0..=0xff => Some(1),
        0xcc | 0xd0 => Some(2),
        0xcd | 0xd1 => Some(3),
        0xca | 0xce | 0xd2 => Some(5),
        0xcb | 0xcf | 0xd3 => Some(9),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
