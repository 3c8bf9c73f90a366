//! The anchored search for one word of ASCII: a table by state and byte, made from the lazy automaton
//! when a model is loaded. Where a word holds anything else, it is the automaton's.

use std::collections::HashMap;

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input};

/// States a table may have: those of published expressions have some dozens.
const MOST_STATES: usize = 255;
/// Bytes below 128, and the end of the text.
const WIDTH: usize = 129;
const END: usize = 128;
/// No match is left to be found.
const DEAD: u8 = u8::MAX;
/// The state is no match.
const NO_PATTERN: u8 = u8::MAX;

/// The table. State 0 is where a search begins.
pub(super) struct Ascii {
    next: Vec<[u8; WIDTH]>,
    /// The pattern of which a match ends before the byte that led to a state.
    matched: Vec<u8>,
}

/// The states met so far.
struct States {
    place: HashMap<LazyStateID, u8>,
    ids: Vec<LazyStateID>,
    matched: Vec<u8>,
}

impl Ascii {
    /// `None` where the automaton is too large, or asks for more than the bytes of a word.
    pub(super) fn new(dfa: &DFA) -> Option<Self> {
        let mut cache = dfa.create_cache();
        let input = Input::new("").anchored(Anchored::Yes);
        let start = dfa.start_state_forward(&mut cache, &input).ok()?;
        let mut states = States { place: HashMap::new(), ids: Vec::new(), matched: Vec::new() };
        states.place(dfa, &cache, start)?;
        let mut next = Vec::new();
        while let Some(id) = states.ids.get(next.len()).copied() {
            let mut row = [DEAD; WIDTH];
            for (byte, place) in row.iter_mut().enumerate() {
                let to = match u8::try_from(byte) {
                    Ok(byte) if byte.is_ascii() => dfa.next_state(&mut cache, id, byte).ok()?,
                    _ => dfa.next_eoi_state(&mut cache, id).ok()?,
                };
                // After that the same number is another state.
                if cache.clear_count() > 0 {
                    return None;
                }
                *place = states.place(dfa, &cache, to)?;
            }
            next.push(row);
        }
        Some(Self { next, matched: states.matched })
    }

    /// The pattern and the end of the match that starts at `from`: `Err` where something that is not
    /// ASCII has a say.
    pub(super) fn find(&self, text: &str, from: usize) -> Result<Option<(usize, usize)>, ()> {
        let mut state = 0_u8;
        let mut found = None;
        let rest = text.as_bytes().get(from..).unwrap_or_default();
        let bytes = rest.iter().map(|byte| usize::from(*byte)).chain([END]);
        for (at, byte) in bytes.enumerate() {
            if byte >= END && at < rest.len() {
                return Err(());
            }
            state = self
                .next
                .get(usize::from(state))
                .and_then(|row| row.get(byte))
                .copied()
                .ok_or(())?;
            if state == DEAD {
                break;
            }
            match self.matched.get(usize::from(state)) {
                None | Some(&NO_PATTERN) => {}
                Some(pattern) => found = Some((usize::from(*pattern), from + at)),
            }
        }
        Ok(found)
    }
}

impl States {
    fn place(&mut self, dfa: &DFA, cache: &Cache, id: LazyStateID) -> Option<u8> {
        if id.is_dead() {
            return Some(DEAD);
        }
        if id.is_quit() || id.is_unknown() {
            return None;
        }
        if let Some(place) = self.place.get(&id) {
            return Some(*place);
        }
        if self.ids.len() >= MOST_STATES {
            return None;
        }
        let place = u8::try_from(self.ids.len()).ok()?;
        let pattern = id.is_match().then(|| dfa.match_pattern(cache, id, 0).as_usize());
        self.matched.push(pattern.map_or(Some(NO_PATTERN), |pattern| u8::try_from(pattern).ok())?);
        self.ids.push(id);
        self.place.insert(id, place);
        Some(place)
    }
}
