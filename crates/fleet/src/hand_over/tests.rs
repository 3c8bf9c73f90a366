//! Whose fault it is, by what failed and what worked.

use std::time::{Duration, Instant};

use super::ledger::{FORGOTTEN, Fault, Ledger, MOST, REST, TRIAL};

/// What engines of these names did: `+` worked, `-` failed, `0` handed nothing over, `?` are tried.
struct Scene {
    ledger: Ledger,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { ledger: Ledger::default(), now: Instant::now() }
    }

    fn play(&mut self, events: &str) -> Vec<(usize, &'static str)> {
        let mut told = Vec::new();
        for (at, event) in events.split_whitespace().enumerate() {
            let (what, pair) = event.split_at(1);
            let (p, d) = pair.split_at(2);
            let fault = match what {
                "+" => {
                    self.ledger.worked(p, d, self.now);
                    None
                }
                "?" => {
                    self.ledger.tries(p, d, self.now);
                    None
                }
                "-" => self.ledger.failed(p, d, self.now),
                _ => self.ledger.nothing_handed(p, self.now).then_some(Fault::Prefill),
            };
            told.extend(fault.map(|fault| (at, fault.as_str())));
        }
        told
    }

    fn later(&mut self, time: Duration) {
        self.now += time;
    }

    fn out(&self) -> String {
        let mut out = Vec::new();
        for name in ["p1", "p2", "p3"] {
            if self.ledger.is_out(Fault::Prefill, name, self.now) {
                out.push(name.to_owned());
            }
        }
        for name in ["d1", "d2", "d3"] {
            if self.ledger.is_out(Fault::Decode, name, self.now) {
                out.push(name.to_owned());
            }
        }
        out.extend(self.ledger.links_out(self.now).map(|(p, d)| format!("{p}{d}")));
        out.join(" ")
    }
}

#[test]
fn the_fault_is_told_by_who_failed_with_whom() {
    type Row = (&'static str, &'static [(usize, &'static str)], &'static str);
    let table: [Row; 12] = [
        // Less than that may be chance.
        ("-p1d1 -p1d2", &[], ""),
        // Several decode engines could not fetch from one prefill engine.
        ("-p1d1 -p1d2 -p1d1", &[(2, "prefill")], "p1"),
        ("-p1d1 -p1d2 -p1d3 -p1d1", &[(2, "prefill")], "p1"),
        // One decode engine could not fetch from several.
        ("-p1d1 -p2d1 -p1d1", &[(2, "decode")], "d1"),
        // One pair alone.
        ("-p1d1 -p1d1 -p1d1 -p1d1", &[(2, "link")], "p1d1"),
        // Both work with others.
        ("-p1d1 +p1d2 -p1d1 +p2d1 -p1d1", &[(4, "link")], "p1d1"),
        // What works at all is not at fault as a whole.
        ("-p1d1 -p1d2 +p1d3 -p1d1", &[], ""),
        ("-p1d1 -p1d1 +p1d1 -p1d1", &[], ""),
        // A decode engine at fault explains what fails with it.
        ("-p1d1 -p2d1 -p1d1 -p1d2 -p1d1 -p1d1", &[(2, "decode")], "d1"),
        // and a prefill engine at fault what is between it and others, before and after.
        ("-p1d1 -p1d1 -p1d1 -p1d2 -p1d2 -p1d2 -p1d1 -p1d1", &[(2, "link"), (3, "prefill")], "p1"),
        // Everything fails: decode engines can still do all of it.
        ("-p1d1 -p2d2 -p1d2 -p2d1 -p1d1 -p2d2", &[(4, "prefill"), (5, "prefill")], "p1 p2"),
        // It has no connector.
        ("0p1 0p1 0p1 0p1", &[(2, "prefill")], "p1"),
    ];
    for (events, told, out) in table {
        let mut scene = Scene::new();
        assert_eq!(scene.play(events), told, "{events}");
        assert_eq!(scene.out(), out, "{events}");
    }
}

#[test]
fn who_is_at_fault_is_tried_again_after_a_while() {
    for (events, out, again) in [
        ("-p1d1 -p1d2 -p1d1", "p1", "prefill"),
        ("-p1d1 -p2d1 -p1d1", "d1", "decode"),
        ("-p1d1 -p1d1 -p1d1", "p1d1", "link"),
        ("0p1 0p1 0p1", "p1", "prefill"),
    ] {
        let mut scene = Scene::new();
        scene.play(events);
        scene.later(REST - Duration::from_millis(1));
        assert_eq!(scene.out(), out, "{events}");
        scene.later(Duration::from_millis(1));
        assert_eq!(scene.out(), "", "{events}");
        // Once more is enough then,
        let last = events.split_whitespace().last().unwrap();
        assert_eq!(scene.play(last), [(0, again)], "{events}");
        assert!(scene.out().starts_with(out), "{events}");
        // and once that works, for all to be well.
        scene.play("+p1d1");
        assert_eq!(scene.out(), "", "{events}");
        assert_eq!(scene.play(last), [], "{events}");
        assert!(!scene.ledger.is_empty());
        scene.later(FORGOTTEN);
        scene.play("+p3d3");
        assert!(scene.ledger.is_empty(), "{events}");
    }
}

#[test]
fn one_request_tries_and_the_others_wait_for_what_comes_of_it() {
    for (events, out) in
        [("-p1d1 -p1d2 -p1d1", "p1"), ("-p1d1 -p2d1 -p1d1", "d1"), ("-p1d1 -p1d1 -p1d1", "p1d1")]
    {
        let mut scene = Scene::new();
        scene.play(events);
        scene.later(REST);
        assert_eq!(scene.out(), "", "{events}");
        scene.play("?p1d1");
        assert_eq!(scene.out(), out, "{events}");
        // It told nothing: the next one.
        scene.later(TRIAL);
        assert_eq!(scene.out(), "", "{events}");
        scene.play("?p1d1");
        // A failure is news, and begins the rest anew.
        assert_eq!(scene.play("-p1d1").len(), 1, "{events}");
        scene.later(TRIAL);
        assert!(scene.out().starts_with(out), "{events}");
        scene.later(REST);
        scene.play("?p1d1 +p1d1");
        assert_eq!(scene.out(), "", "{events}");
    }
    // Who is not at fault is never waited for.
    let mut scene = Scene::new();
    scene.play("-p1d1 ?p1d1 ?p2d2");
    assert_eq!(scene.out(), "");
}

#[test]
fn no_more_is_kept_than_there_is_room_for() {
    let mut scene = Scene::new();
    for n in 0..3 * MOST {
        scene.later(Duration::from_millis(1));
        scene.ledger.failed(&format!("p{n}"), &format!("d{n}"), scene.now);
        scene.ledger.nothing_handed(&format!("p{n}"), scene.now);
    }
    assert!(scene.ledger.len() <= 2 * MOST, "{}", scene.ledger.len());
    // The latest are there.
    let name = |side: &str| format!("{side}{}", 3 * MOST - 1);
    scene.ledger.failed(&name("p"), &name("d"), scene.now);
    let third = scene.ledger.failed(&name("p"), &name("d"), scene.now);
    assert_eq!(third, Some(Fault::Link));
}
