use http::uri::Authority;

use super::*;
use crate::report::Verdict;

fn target(model: Option<&str>) -> Target {
    let mut target = Target::new(Authority::from_static("engine:8000"));
    target.model = model.map(str::to_owned);
    target
}

fn served(ids: &[&str]) -> EngineCard {
    let model =
        |id: &&str| ServedModel { id: (*id).to_owned(), root: None, max_model_len: Some(2048) };
    EngineCard { models: ids.iter().map(model).collect(), ..EngineCard::default() }
}

#[test]
fn cache_labels_are_read_and_nonsense_is_not() {
    let page = r#"vllm:cache_config_info{block_size="32",enable_prefix_caching="False",hash_block_size="None",prefix_caching_hash_algo="sha256_cbor"} 1.0"#;
    let cache = cache_config(page);
    assert_eq!(cache.block_size, Some(32));
    assert_eq!(cache.hash_block_size, None);
    assert_eq!(cache.prefix_caching, Some(false));
    assert_eq!(cache.algorithm.as_deref(), Some("sha256_cbor"));
    let page = r#"vllm:cache_config_info{block_size="0",enable_prefix_caching="maybe"} 1.0"#;
    assert_eq!(cache_config(page), CacheConfig::default());
    assert_eq!(cache_config(""), CacheConfig::default());
}

#[test]
fn a_model_that_is_not_served_is_named_beside_those_that_are() {
    let leg = models(&target(Some("big")), &served(&["tiny"]));
    assert_eq!(leg.verdict, Verdict::Off);
    assert!(leg.finding.contains("`big`") && leg.finding.contains("tiny"), "{leg}");
    assert_eq!(models(&target(Some("tiny")), &served(&["tiny"])).verdict, Verdict::Ok);
    assert_eq!(models(&target(None), &served(&[])).verdict, Verdict::Off);
}

#[test]
fn requests_name_a_base_model() {
    let card = served(&["first", "second"]);
    assert_eq!(model_for_requests(&target(None), &card), "first");
    assert_eq!(model_for_requests(&target(Some("second")), &card), "second");
    assert_eq!(model_for_requests(&target(Some("an-adapter")), &card), "first");
    assert_eq!(model_for_requests(&target(Some("x")), &served(&[])), "x");
}
