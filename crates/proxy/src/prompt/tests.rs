//! What is made of a client's token ids.

use kvasir_fleet::{BlockIdentity, Fleet, FleetSpec, PoolSpec, RankAddressingKind, TokenSpec};
use kvasir_inventory::{Inventory, Limits};

use super::*;

#[tokio::test]
async fn ids_of_a_header_are_never_exact_and_no_more_than_the_limit() {
    let tokens = TokenSpec { max_prompt_bytes: 16, trust_headers: true, ..TokenSpec::default() };
    let pool = PoolSpec {
        model: "m".to_owned(),
        aliases: Vec::new(),
        decision_headers: None,
        selection: kvasir_balance::SelectionSpec::default(),
        tokenizer_dir: None,
        authorization: None,
        tokens,
        rank_addressing: RankAddressingKind::None,
        identity: BlockIdentity::Tokens,
        timeouts: kvasir_fleet::Timeouts::default(),
        admission: None,
        split: None,
        endpoints: Vec::new(),
    };
    let spec = FleetSpec {
        pools: vec![pool],
        scrape_interval: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(1),
        seed: 1,
        decision_log: None,
        health: kvasir_fleet::HealthSpec::default(),
    };
    let inventory = Inventory::new(kvasir_kv_hash::KeySpace::fixed(), Limits::default());
    let fleet = Fleet::start(spec, Arc::new(inventory)).unwrap();
    let pool = fleet.only_pool().unwrap();
    // Also where every answer so far bore them out.
    (0..20).for_each(|_| pool.token_headers().judge("m", 4, 4));
    let four = Known::of_header(pool, vec![1, 2, 3, 4]);
    assert!(!four.is_exact());
    assert_eq!((four.level, four.tokens, four.count), ("tokens", "header", 4));
    let five = Known::of_header(pool, vec![1, 2, 3, 4, 5]);
    assert!(!five.is_exact());
    assert_eq!((five.level, five.tokens, five.count), ("text", "head", 5));
    assert_eq!(five.prompts, Some(vec![vec![1, 2, 3, 4]]));
}

#[test]
fn every_reason_has_a_class() {
    let text = String::new;
    let (bytes, limit) = (2, 1);
    let of = |why: Unrouted| Known::only_size(1, why.as_str()).blind(Some(Api::Chat));
    for (why, wanted) in [
        (Unrouted::NoTokenizer(text()), Blind::NoTokenizer),
        (Unrouted::NoTemplate, Blind::Tokenize),
        (Unrouted::TemplateError(text()), Blind::Tokenize),
        (Unrouted::EngineRendered(text()), Blind::Tokenize),
        (Unrouted::Tokenizer(text()), Blind::Tokenize),
        (Unrouted::Multimodal(text()), Blind::Unsupported),
        (Unrouted::UnsupportedField(text()), Blind::Unsupported),
        (Unrouted::UnsupportedApi("x"), Blind::ApiMode),
        (Unrouted::Body(text()), Blind::TextEmpty),
        (Unrouted::TooLong { bytes, limit }, Blind::Unsupported),
        (Unrouted::TooMany { prompts: 2, limit }, Blind::Unsupported),
        (Unrouted::StoredResponse, Blind::Unsupported),
        (Unrouted::Pairs, Blind::Unsupported),
    ] {
        assert_eq!(of(why.clone()), Some(wanted), "{why:?}");
    }
    let of = |word| Known::only_size(1, word).blind(Some(Api::Chat));
    assert_eq!(of("not_json"), Some(Blind::TextEmpty));
    assert_eq!(of("tokenizer_pending"), Some(Blind::TokenizerPending));
    assert_eq!(of("tokenizer_busy"), Some(Blind::TokenizerBusy));
    assert_eq!(Known::only_size(1, "not_json").blind(None), Some(Blind::ApiMode));
}
