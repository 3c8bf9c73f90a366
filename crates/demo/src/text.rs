//! Prose of a given length, made of a seed. It says nothing; it only has to be tokenised like text.

use crate::rng::Rng;

const BUSINESSES: [&str; 12] = [
    "a city library",
    "a bicycle workshop",
    "an online bookshop",
    "a railway company",
    "a garden centre",
    "a language school",
    "a travel agency",
    "a public hospital",
    "a bakery",
    "a theatre",
    "a water utility",
    "a museum of clocks",
];

const SUBJECTS: [&str; 16] = [
    "a customer",
    "the assistant",
    "an order",
    "the account",
    "a refund",
    "the delivery",
    "a complaint",
    "the invoice",
    "a new member",
    "the opening time",
    "a discount",
    "the catalogue",
    "a reservation",
    "the warranty",
    "a spare part",
    "the newsletter",
];

const VERBS: [&str; 14] = [
    "should be confirmed by",
    "is never discussed with",
    "must be checked against",
    "may be replaced by",
    "is kept apart from",
    "is explained before",
    "comes after",
    "depends on",
    "is part of",
    "has to agree with",
    "is sent together with",
    "is recorded under",
    "takes precedence over",
    "is valid for",
];

const ENDINGS: [&str; 12] = [
    "within three working days",
    "unless the manager decides otherwise",
    "in a short and friendly answer",
    "without naming internal systems",
    "as long as the season lasts",
    "when the amount is above fifty",
    "in the language of the question",
    "with a link to the right page",
    "on weekdays only",
    "after the second reminder",
    "if the number is known",
    "and nothing else",
];

const OPENINGS: [&str; 10] = [
    "Could you tell me whether",
    "I was told that",
    "Please explain why",
    "What happens when",
    "My question is if",
    "Is it true that",
    "Last week somebody said that",
    "How do I prove that",
    "I do not understand why",
    "Before I come by:",
];

/// A system prompt of about `words` words. Those of different `tenant`s differ from the first
/// sentence on, so that they share no block.
pub(crate) fn system_prompt(rng: &mut Rng, tenant: usize, words: usize) -> String {
    let business = rng.pick(&BUSINESSES);
    let mut text = format!("Tenant {tenant}: you answer for {business}. These rules hold.");
    let mut rule = 1;
    while text.split(' ').count() < words {
        text.push_str(&format!(" {rule}. "));
        let start = text.len();
        sentence(rng, &mut text);
        if let Some(first) = text.get_mut(start..=start) {
            first.make_ascii_uppercase();
        }
        rule += 1;
    }
    text
}

/// What a user says, in so many sentences.
pub(crate) fn question(rng: &mut Rng, sentences: u64) -> String {
    let mut text = String::new();
    for place in 0..sentences {
        if place > 0 {
            text.push(' ');
        }
        text.push_str(rng.pick(&OPENINGS));
        text.push(' ');
        sentence(rng, &mut text);
    }
    text.push_str(&format!(" My number is {}.", rng.between(10_000, 99_999)));
    text
}

fn sentence(rng: &mut Rng, text: &mut String) {
    let subject = rng.pick(&SUBJECTS);
    let verb = rng.pick(&VERBS);
    let object = rng.pick(&SUBJECTS);
    let ending = rng.pick(&ENDINGS);
    let number = rng.between(2, 99);
    text.push_str(&format!("{subject} {verb} {object} {number}, {ending}."));
}
