use super::*;

fn all(events: &mut Events, piece: &[u8]) -> Vec<u8> {
    let mut passed = Vec::new();
    let mut next = events.push(Bytes::copy_from_slice(piece));
    while let Some(piece) = next {
        passed.extend_from_slice(&piece);
        next = events.next();
    }
    passed
}

/// The plain way: where the last blank line of a text ends.
fn naive_end(text: &[u8]) -> usize {
    let ends = |end: &usize| {
        let text = &text[..*end];
        [&b"\n\n"[..], b"\n\r\n", b"\r\r\n", b"\r\r"].iter().any(|blank| text.ends_with(blank))
    };
    (0..=text.len()).rev().find(ends).unwrap_or(0)
}

const STREAMS: [&str; 5] = [
    "data: a\n\ndata: b\n\n: ping\n\ndata: [DONE]\n\n",
    "event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n",
    "data: a\r\rdata: b\r\r",
    "data: a\n\r\n\n\ndata: two\ndata: lines\n\ndata: open",
    "\n\n\r\n\r\r\n data",
];

#[test]
fn whole_events_pass_at_once_and_parts_of_events_never_wherever_it_is_cut() {
    for stream in STREAMS {
        let stream = stream.as_bytes();
        for one in 0..=stream.len() {
            for two in one..=stream.len() {
                let mut events = Events::default();
                let (mut passed, mut came) = (Vec::new(), 0);
                for piece in [&stream[..one], &stream[one..two], &stream[two..]] {
                    came += piece.len();
                    passed.extend(all(&mut events, piece));
                    assert_eq!(passed.len(), naive_end(&stream[..came]), "{one} {two}");
                }
                assert_eq!(passed, stream[..passed.len()]);
                events.release();
                while let Some(piece) = events.next() {
                    passed.extend_from_slice(&piece);
                }
                assert_eq!(passed, stream, "nothing is lost at a good end");
            }
        }
    }
}

#[test]
fn byte_by_byte() {
    for stream in STREAMS {
        let mut events = Events::default();
        let mut passed = 0;
        for (at, byte) in stream.as_bytes().iter().enumerate() {
            passed += all(&mut events, &[*byte]).len();
            assert_eq!(passed, naive_end(&stream.as_bytes()[..=at]));
        }
        assert!(events.cut(), "an event can follow");
        assert_eq!(events.next(), None);
    }
}

#[test]
fn a_piece_that_ends_with_an_event_is_passed_as_it_is() {
    let piece = Bytes::from_static(b"data: a\n\ndata: b\n\n");
    let passed = Events::default().push(piece.clone()).unwrap();
    assert_eq!((passed.as_ptr(), passed.len()), (piece.as_ptr(), piece.len()));
}

#[test]
fn a_very_long_event_is_not_held_and_nothing_can_follow_it_when_it_breaks() {
    let mut events = Events::default();
    let part = vec![b'x'; 40 << 10];
    assert_eq!(all(&mut events, &part).len(), 0);
    assert_eq!(all(&mut events, &part).len(), 2 * part.len());
    assert_eq!(all(&mut events, &part).len(), part.len(), "the rest as it comes");
    assert!(!events.cut());
    assert_eq!(all(&mut events, b"\n\ndata: ").len(), 2);
    assert!(events.cut(), "its end has come");
    assert_eq!(events.queue.len(), 0);
}
