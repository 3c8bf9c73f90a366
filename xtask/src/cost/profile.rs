//! A profile as callgrind writes it: what each function executed itself, and what it executed by
//! calling others.

use std::collections::HashMap;

/// Instructions by function.
#[derive(Debug, Default)]
pub(super) struct Profile {
    /// Names of functions; the others refer to them by place.
    pub(super) names: Vec<String>,
    /// Instructions of each function itself.
    pub(super) own: Vec<u64>,
    /// Instructions of calls, by caller and callee, all that was called from there included.
    pub(super) calls: HashMap<(usize, usize), u64>,
    by_id: HashMap<String, usize>,
}

impl Profile {
    /// Reads a dump. Costs that belong to no function and lines of other kinds are passed over.
    pub(super) fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let (mut function, mut called, mut is_call) = (None, None, false);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = Some(profile.named(name));
            } else if let Some(name) = line.strip_prefix("cfn=") {
                called = Some(profile.named(name));
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if let (Some(function), Some(cost)) = (function, cost(line)) {
                match called.filter(|_| is_call) {
                    Some(called) => *profile.calls.entry((function, called)).or_default() += cost,
                    None => profile.own[function] += cost,
                }
                is_call = false;
            }
        }
        profile
    }

    /// The function of `(id) name`, or of `(id)` after that.
    fn named(&mut self, text: &str) -> usize {
        let (id, name) = match text.split_once(") ") {
            Some((id, name)) => (id, name),
            None => (text.trim_end_matches(')'), text),
        };
        if let Some(known) = self.by_id.get(id) {
            return *known;
        }
        self.names.push(name.to_owned());
        self.own.push(0);
        self.by_id.insert(id.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

/// The cost in a line of a position and a cost.
fn cost(line: &str) -> Option<u64> {
    if !line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
        return None;
    }
    line.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_instructions_and_calls_are_told_apart() {
        let text = "version: 1\nevents: Ir\nfl=(1) a.rs\nfn=(1) main\n10 5\n+1 2\ncfi=(2) b.rs\n\
                    cfn=(2) work\ncalls=3 20\n* 90\n+1 1\n\nfn=(2)\n20 60\ncfn=(3) malloc\n\
                    calls=1 0\n* 30\n\nfn=(3)\n0 30\ntotals: 98\n";
        let profile = Profile::parse(text);
        assert_eq!(profile.names, ["main", "work", "malloc"]);
        assert_eq!(profile.own, [8, 60, 30]);
        assert_eq!(profile.calls, HashMap::from([((0, 1), 90), ((1, 2), 30)]));
    }
}
