//! What a running gateway cannot change. It is listed here and nowhere else.

use crate::model::Config;

impl Config {
    /// Puts back what cannot change while a gateway runs that was started with `started`: `self` is
    /// then what it can run with. The keys whose new values wait for a restart.
    pub fn hold_fixed(&mut self, started: &Self) -> Vec<&'static str> {
        let mut held = Vec::new();
        hold("listen", &mut self.listen, &started.listen, &mut held);
        let forwarded_headers = self.listener.forwarded_headers;
        self.listener.forwarded_headers = started.listener.forwarded_headers;
        hold("listener", &mut self.listener, &started.listener, &mut held);
        self.listener.forwarded_headers = forwarded_headers;
        hold("inventory", &mut self.inventory, &started.inventory, &mut held);
        hold("decision_log", &mut self.decision_log, &started.decision_log, &mut held);
        hold("tracing", &mut self.tracing, &started.tracing, &mut held);
        hold("log", &mut self.log, &started.log, &mut held);
        held
    }
}

fn hold<T: Clone + PartialEq>(
    key: &'static str,
    wanted: &mut T,
    started: &T,
    held: &mut Vec<&'static str>,
) {
    if wanted != started {
        wanted.clone_from(started);
        held.push(key);
    }
}
