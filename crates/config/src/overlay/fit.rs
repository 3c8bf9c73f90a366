//! Changes that were kept, and a configuration that they do not all fit any more.

use std::fmt::Display;

use super::change::MOST_CHANGES;
use super::{Dropped, Overlay};
use crate::model::Config;

/// Of how many that pass the check something is made, which reads files, to find the one to be dropped.
const MOST_MADE: usize = 16;
/// How often what did not fit is tried again, after what was laid meanwhile.
const PASSES: usize = 3;

/// A configuration with those changes that fit it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted<T> {
    /// What was made of both together.
    pub made: T,
    /// The changes that fit.
    pub overlay: Overlay,
    /// Those that do not, and why.
    pub dropped: Vec<Dropped>,
}

impl Config {
    /// Lays changes over the configuration, checks what comes out, and makes something of it, leaving out as
    /// few of the changes as possible: none where all fit; where they do not, the one that takes the fewest
    /// others with it; where no single one is to blame, those that do not fit what was laid before them.
    /// `make` may take long: it is only called with what passes the check.
    ///
    /// # Errors
    /// When nothing can be made of the configuration itself.
    pub fn fitted<T, E: Display>(
        &self,
        overlay: Overlay,
        make: impl Fn(Config) -> Result<T, E>,
    ) -> Result<Fitted<T>, E> {
        let fit = Fit { base: self, make };
        let (_, mut dropped) = self.with_overlay(&overlay);
        let overlay = overlay.without(&dropped);
        let why = match fit.try_on(&overlay) {
            Ok(made) => return Ok(Fitted { made, overlay, dropped }),
            Err(why) => why,
        };
        // Where it cannot be used itself that is what is to be mended.
        let alone = fit.alone()?;
        let found = fit.without_one(&overlay, &why);
        let found = found.unwrap_or_else(|| fit.by_halves(&overlay, alone));
        dropped.extend(found.dropped);
        Ok(Fitted { dropped, ..found })
    }
}

struct Fit<'a, F> {
    base: &'a Config,
    make: F,
}

impl<T, E: Display, F: Fn(Config) -> Result<T, E>> Fit<'_, F> {
    fn alone(&self) -> Result<T, E> {
        (self.make)(self.base.clone())
    }

    /// The configuration with all of it, if that passes the check.
    fn checked(&self, overlay: &Overlay) -> Result<Config, String> {
        let (config, dropped) = self.base.with_overlay(overlay);
        if let Some(one) = dropped.first() {
            return Err(one.why.clone());
        }
        config.check().map_err(|(key, why)| format!("{key}: {why}"))?;
        Ok(config)
    }

    /// Whether all of it fits.
    fn try_on(&self, overlay: &Overlay) -> Result<T, String> {
        (self.make)(self.checked(overlay)?).map_err(|why| format!("{why:#}"))
    }

    fn without_one(&self, overlay: &Overlay, why: &str) -> Option<Fitted<T>> {
        let each = overlay.each();
        if each.len() > MOST_CHANGES {
            return None;
        }
        let passing = each.into_iter().filter_map(|one| {
            let rest = overlay.clone().without(std::slice::from_ref(&one));
            // Some change only what it has made.
            let (_, others) = self.base.with_overlay(&rest);
            let overlay = rest.without(&others);
            let config = self.checked(&overlay).ok()?;
            let one = Dropped { why: why.to_owned(), ..one };
            let dropped = std::iter::once(one).chain(others).collect();
            Some(Fitted { made: config, overlay, dropped })
        });
        let mut passing: Vec<Fitted<Config>> = passing.collect();
        passing.sort_by_key(|fitted| fitted.dropped.len());
        passing.into_iter().take(MOST_MADE).find_map(|Fitted { made, overlay, dropped }| {
            let made = (self.make)(made).ok()?;
            Some(Fitted { made, overlay, dropped })
        })
    }

    fn by_halves(&self, overlay: &Overlay, alone: T) -> Fitted<T> {
        let mut laid = Laid { made: alone, left: overlay.each() };
        for _ in 0..PASSES {
            let tried = laid.left.clone();
            self.lay(overlay, &tried, &mut laid);
            // What was laid may have made room for what was not.
            if laid.left.is_empty() || laid.left.len() == tried.len() {
                break;
            }
        }
        let Laid { made, left: dropped } = laid;
        Fitted { made, overlay: overlay.clone().without(&dropped), dropped }
    }

    /// Lays those changes of some that fit what is laid before them: all at once, or else one half after
    /// the other.
    fn lay(&self, overlay: &Overlay, some: &[Dropped], laid: &mut Laid<T>) {
        let is_one = |one: &&Dropped| some.iter().any(|other| one.is_change(other));
        let rest: Vec<Dropped> = laid.left.iter().filter(|one| !is_one(one)).cloned().collect();
        match (self.try_on(&overlay.clone().without(&rest)), some) {
            (Ok(made), _) => *laid = Laid { made, left: rest },
            (Err(why), [one]) => {
                if let Some(known) = laid.left.iter_mut().find(|known| known.is_change(one)) {
                    known.why = why;
                }
            }
            (Err(_), _) => {
                let (first, second) = some.split_at(some.len() / 2);
                self.lay(overlay, first, laid);
                self.lay(overlay, second, laid);
            }
        }
    }
}

/// What was made of the changes that were laid so far.
struct Laid<T> {
    made: T,
    /// Those that were not, or not yet.
    left: Vec<Dropped>,
}
