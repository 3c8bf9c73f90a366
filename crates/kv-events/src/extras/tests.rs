use super::*;
use crate::event::Medium;
use kvasir_inventory::{EngineHash, Tier};

fn text(s: &str) -> ExtraKey {
    ExtraKey::Text(s.to_owned())
}

fn image(id: &str, offset: i64) -> ExtraKey {
    ExtraKey::Item { identifier: id.to_owned(), offset }
}

fn stored(schema: Schema, keys: Vec<Vec<ExtraKey>>) -> BlockStored {
    BlockStored {
        block_hashes: (0..keys.len() as u64).map(EngineHash).collect(),
        parent: None,
        token_ids: vec![1; keys.len() * 4],
        block_size: 4,
        lora_id: None,
        lora_name: None,
        medium: Medium::Known(Tier::Device),
        extra_keys: Some(keys),
        cache_salt: None,
        group: None,
        spec_kind: None,
        sliding_window: None,
        lookahead_token_ids: None,
        schema,
    }
}

fn child(event: BlockStored) -> BlockStored {
    BlockStored { parent: Some(EngineHash(9)), ..event }
}

fn with_lora(event: BlockStored) -> BlockStored {
    BlockStored { lora_name: Some("sql".to_owned()), ..event }
}

fn of(identity: &[u8], offset: i64) -> ExtraItem<'_> {
    ExtraItem { identity, offset }
}

#[test]
fn plain_blocks_have_none() {
    let event = stored(Schema::Paired, vec![vec![], vec![]]);
    assert_eq!(event.extras(), Ok(Extras::default()));
    let event = BlockStored { extra_keys: None, ..event };
    assert_eq!(event.extras(), Ok(Extras::default()));
}

#[test]
fn a_full_list_is_taken_apart_by_position() {
    let digest = vec![0xab; 32];
    let keys = vec![
        vec![
            text("sql"),
            image("cat", 3),
            image("dog", 3),
            text("tenant"),
            ExtraKey::Bytes(digest.clone()),
        ],
        vec![text("sql"), image("dog", -1), ExtraKey::Bytes(digest.clone())],
        vec![text("sql")],
    ];
    let event = with_lora(stored(Schema::Paired, keys));
    let extras = event.extras().unwrap();
    assert_eq!(extras.salt, Some("tenant"));
    assert_eq!(extras.items[0], [of(b"cat", 3), of(b"dog", 3), of(&digest, 0)]);
    assert_eq!(extras.items[1], [of(b"dog", -1), of(&digest, 0)]);
    assert!(extras.items[2].is_empty());
}

#[test]
fn a_salt_equal_to_the_adapters_name_is_still_a_salt() {
    let event = with_lora(stored(Schema::Paired, vec![vec![text("sql"), text("sql")]]));
    assert_eq!(event.extras().unwrap().salt, Some("sql"));
    let event = with_lora(stored(Schema::Paired, vec![vec![text("sql")]]));
    assert_eq!(event.extras().unwrap().salt, None);
}

#[test]
fn a_bare_string_is_a_salt_only_in_the_first_block_of_a_prompt() {
    let keys = vec![vec![text("x")]];
    assert_eq!(stored(Schema::Paired, keys.clone()).extras().unwrap().salt, Some("x"));
    let event = child(stored(Schema::Paired, keys.clone()));
    assert_eq!(event.extras(), Err(ExtrasError::Unexpected(0)));
    let event = stored(Schema::Paired, vec![vec![], vec![text("x")]]);
    assert_eq!(event.extras(), Err(ExtrasError::Unexpected(1)));
    // Two bare strings: the form of 0.20 and newer has no place for the first.
    let event = stored(Schema::Paired, vec![vec![text("x"), text("y")]]);
    assert_eq!(event.extras(), Err(ExtrasError::Unexpected(0)));
    // The same with images: 0.17 and 0.18.
    let event = child(stored(Schema::Early, keys));
    let extras = event.extras().unwrap();
    assert_eq!((extras.salt, &extras.items[..]), (None, &[vec![of(b"x", 0)]][..]));
}

#[test]
fn the_ambiguous_string_of_early_events_is_both_salt_and_image() {
    let event = stored(Schema::Early, vec![vec![text("img"), text("x")], vec![text("x")]]);
    let extras = event.extras().unwrap();
    assert_eq!(extras.salt, Some("x"));
    assert_eq!(extras.items, [vec![of(b"img", 0), of(b"x", 0)], vec![of(b"x", 0)]]);
    // A pair anywhere in the event says 0.19, where it is a salt.
    let event = stored(Schema::Early, vec![vec![image("img", 1), text("x")]]);
    let extras = event.extras().unwrap();
    assert_eq!((extras.salt, &extras.items[..]), (Some("x"), &[vec![of(b"img", 1)]][..]));
}

#[test]
fn keys_outside_the_contract_are_errors() {
    let event = with_lora(stored(Schema::Paired, vec![vec![text("sql")], vec![]]));
    assert_eq!(event.extras(), Err(ExtrasError::Adapter(1)));
    let event = stored(Schema::Paired, vec![vec![ExtraKey::Unknown]]);
    assert_eq!(event.extras(), Err(ExtrasError::Unexpected(0)));
    let mut event = stored(Schema::Paired, vec![vec![], vec![]]);
    event.block_hashes.pop();
    assert_eq!(event.extras(), Err(ExtrasError::Count { lists: 2, blocks: 1 }));
    let mut event = stored(Schema::Paired, vec![vec![text("x")]]);
    event.cache_salt = Some("y".to_owned());
    assert_eq!(event.extras(), Err(ExtrasError::Salt));
}

#[test]
fn a_salt_of_its_own_field_counts() {
    let mut event = stored(Schema::Paired, vec![]);
    event.extra_keys = None;
    event.cache_salt = Some("tenant".to_owned());
    assert_eq!(event.extras().unwrap().salt, Some("tenant"));
    event.cache_salt = Some(String::new());
    assert_eq!(event.extras().unwrap().salt, None);
}
