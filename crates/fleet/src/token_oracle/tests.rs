use super::*;

fn compared<'a>(own: &'a [u32], engine: &'a [u32]) -> Compared<'a> {
    Compared { model: "m", endpoint: "e", case: "c", own, engine }
}

/// A request that was compared.
fn sampled(parity: &TokenOracle, part: ParityPart, own: &[u32], engine: &[u32]) {
    let equal = parity.count(part, compared(own, engine));
    parity.conclude(part, "m", Shown::Sample { equal });
}

#[test]
fn a_template_that_differs_leaves_texts_alone() {
    let parity = TokenOracle::new(ParityMode::Sample);
    assert_eq!(parity.state(ParityPart::Template), Parity::Unchecked);
    parity.conclude(ParityPart::Template, "m", Shown::Probes { equal: false });
    parity.conclude(ParityPart::Tokenizer, "m", Shown::Probes { equal: true });
    assert!(parity.differs(Api::Chat) && parity.differs(Api::Messages));
    assert!(!parity.differs(Api::Completions));
    parity.conclude(ParityPart::Tokenizer, "m", Shown::Probes { equal: false });
    assert!(parity.differs(Api::Completions) && parity.differs(Api::Embeddings));
    parity.reset();
    assert!(!parity.differs(Api::Chat));
    assert_eq!(parity.state(ParityPart::Template), Parity::Unchecked);
}

#[test]
fn eight_of_twenty_requests_make_a_difference_and_pass() {
    let parity = TokenOracle::new(ParityMode::Sample);
    let part = ParityPart::Tokenizer;
    (0..7).for_each(|_| sampled(&parity, part, &[1, 2], &[1, 3]));
    assert_eq!(parity.state(part), Parity::Equal);
    sampled(&parity, part, &[1], &[1, 2]);
    assert_eq!(parity.state(part), Parity::Different);
    (0..13).for_each(|_| sampled(&parity, part, &[1], &[1]));
    assert_eq!(parity.state(part), Parity::Equal);
    assert_eq!(parity.counts(part), [("equal", 13), ("different", 8), ("skipped", 0)]);
}

#[test]
fn requests_are_taken_one_at_a_time_and_rarely() {
    let parity = TokenOracle::new(ParityMode::Sample);
    let body = Bytes::from_static(b"{}");
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/models/tiny");
    let made_by = Arc::new(Renderer::load(dir.as_ref()).unwrap());
    parity.offer(Api::Embeddings, &body, &[1], &made_by);
    parity.offer(Api::Chat, &Bytes::from(vec![b' '; SAMPLE_BYTES + 1]), &[1], &made_by);
    assert!(parity.take_sample().is_none());
    for id in 0..100 {
        parity.offer(Api::Chat, &body, &[id], &made_by);
    }
    assert_eq!(parity.take_sample().unwrap().ids, [0]);
    parity.offer(Api::Chat, &body, &[1], &made_by);
    assert!(parity.take_sample().is_none(), "too soon");
    let off = TokenOracle::new(ParityMode::Startup);
    off.offer(Api::Chat, &body, &[1], &made_by);
    assert!(off.take_sample().is_none());
}
