//! What an answer reports of a prompt, and what its silence means.

/// What an engine's answer says, and to what.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The API's name, as metrics have it.
    pub api: &'static str,
    /// Whether the answer was streamed.
    pub streamed: bool,
    /// The client's name for the request.
    pub request_id: Option<&'a str>,
    /// Whether the answer came whole and from the first engine asked.
    pub clean: bool,
    /// Prompt tokens, where it says.
    pub prompt_tokens: Option<u64>,
    /// Cached prompt tokens, where it says: [`Endpoint::reported_cached_tokens`].
    ///
    /// [`Endpoint::reported_cached_tokens`]: crate::Endpoint::reported_cached_tokens
    pub cached_tokens: Option<u64>,
    /// Blocks that the engine removed between the choice and the answer's first data
    /// ([`Reservation::evicted`](crate::Reservation::evicted)).
    pub evicted: u64,
}

/// The shapes of answers in which an engine was seen to report cached tokens, in its present life:
/// in these, no number means none. One API may report and another not, by the engine's version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporting {
    shapes: Vec<(&'static str, bool)>,
}

impl Reporting {
    /// What `number` says of cached tokens in an answer of this shape.
    pub(crate) fn read(
        &mut self,
        api: &'static str,
        streamed: bool,
        number: Option<u64>,
    ) -> Option<u64> {
        let shape = (api, streamed);
        let known = self.shapes.contains(&shape);
        if number.is_some() && !known {
            // As many as there are APIs, twice.
            self.shapes.push(shape);
        }
        number.or(known.then_some(0))
    }
}

/// The longest client's name of a request that is kept in an example.
const MAX_ID: usize = 128;

/// A client's name for a request, cut to a length that can be kept.
pub(crate) fn bounded(id: Option<&str>) -> Option<String> {
    let id = id?;
    let end = id.char_indices().map(|(at, _)| at).find(|at| *at >= MAX_ID).unwrap_or(id.len());
    id.get(..end).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_means_none_only_where_numbers_were_seen() {
        let mut reporting = Reporting::default();
        assert_eq!(reporting.read("/a", true, None), None);
        assert_eq!(reporting.read("/a", true, Some(7)), Some(7));
        assert_eq!(reporting.read("/a", true, None), Some(0));
        assert_eq!(reporting.read("/a", false, None), None);
        assert_eq!(reporting.read("/b", true, None), None);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let long = "é".repeat(200);
        let kept = bounded(Some(&long)).unwrap();
        assert!(kept.len() <= MAX_ID + 1 && long.starts_with(&kept) && kept.len() >= MAX_ID);
        assert_eq!(bounded(Some("ask-1")).as_deref(), Some("ask-1"));
        assert_eq!(bounded(None), None);
    }
}
