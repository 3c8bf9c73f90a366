use kvasir_prompt::PromptText;

use super::*;

fn tokens<'a>(salt: Option<&'a str>) -> PromptTokens<'a> {
    PromptTokens { prompts: None, count: 100, exact: false, adapter: Some("a"), salt }
}

#[test]
fn policies_are_told_what_they_need_and_no_more() {
    let text = PromptText { text: b"words".to_vec(), ..PromptText::default() };
    let asked = Asked {
        session: Some(7),
        text: Some(&text),
        head: b"{\"messages\"",
        tools: true,
        images: true,
        blind: Some(Blind::NoTokenizer),
        foreseen: false,
    };
    let told = |needs: Needs| {
        let mut traits = Traits::of(&tokens(Some("s")), needs);
        traits.ask(&asked);
        traits
    };
    let all = told(Needs { session: true, head: true, ..Needs::default() });
    let query = all.query(100, None, all.blind);
    assert_eq!((query.session, query.blind), (Some(7), Some(Blind::NoTokenizer)));
    assert!(query.prefix.tools && query.prefix.images);
    assert_eq!(query.prefix.text_head, digest_of_text(b"words"));
    assert_eq!((query.prefix.adapter, query.prefix.salt), (Some("a"), Some(digest(b"s"))));
    // Conversations are told apart by adapter and salt, whether or not anything else is.
    let session = told(Needs { session: true, ..Needs::default() });
    let query = session.query(100, None, None);
    assert_eq!((query.prefix.adapter, query.prefix.text_head), (Some("a"), None));
    assert_ne!(query.pin(), query.session);
    let nothing = told(Needs::default());
    let query = nothing.query(100, None, None);
    assert_eq!((query.session, query.prefix.salt), (None, None));
}

#[test]
fn without_a_text_the_first_bytes_tell_requests_apart() {
    let mut traits = Traits::of(&tokens(None), Needs { head: true, ..Needs::default() });
    traits.ask(&Asked { head: b"bytes", ..Asked::default() });
    assert_eq!(traits.query(1, None, None).prefix.text_head, digest_of_text(b"bytes"));
}

#[test]
fn a_log_changes_no_choice() {
    use kvasir_balance::{Candidate, PolicyKind};
    let names = ["a", "b", "c", "d", "e"];
    let candidates: Vec<Candidate> = names
        .iter()
        .map(|name| Candidate { id: EndpointId::of(name), ..Candidate::default() })
        .collect();
    let members = Members { candidates: &candidates, exclusions: &[], first_attempt: true };
    let text = PromptText { text: b"words".to_vec(), ..PromptText::default() };
    for kind in PolicyKind::ALL {
        let spec = SelectionSpec::of(kind);
        let chosen = |logged: bool| -> Vec<Option<usize>> {
            let mut selection = spec.build(1);
            let needs = selection.needs();
            let needs = if logged { logged_needs(needs) } else { needs };
            let mut rng = Rng::new(1);
            (0..64)
                .map(|session| {
                    let mut traits = Traits::of(&tokens(Some("s")), needs);
                    let session = Some(session);
                    let text = Some(&text);
                    traits.ask(&Asked { session, text, images: true, ..Asked::default() });
                    let mut moment = Moment { now: Duration::ZERO, rng: &mut rng };
                    let query = traits.query(100, None, None);
                    selection.select(&query, &members, &mut moment).map(|found| found.index)
                })
                .collect()
        };
        assert_eq!(chosen(true), chosen(false), "{kind:?}");
    }
}
