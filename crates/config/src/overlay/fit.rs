//! Changes that were kept, and a configuration that they do not all fit any more.

use std::fmt::Display;

use super::{Dropped, Overlay};
use crate::model::Config;

/// Above this many changes no best one is looked for among them.
const MOST_TRIED: usize = 1024;
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
    /// Lays changes over the configuration and makes something of both, if that can be used, leaving out as few of the changes
    /// as possible: none where all fit; where they do not, the one that takes the fewest others with it;
    /// where no single one is to blame, those that do not fit what was laid before them.
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
        let found = found.unwrap_or_else(|| fit.one_by_one(&overlay, alone));
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

    /// Whether all of it fits.
    fn try_on(&self, overlay: &Overlay) -> Result<T, String> {
        let (config, dropped) = self.base.with_overlay(overlay);
        if let Some(one) = dropped.first() {
            return Err(one.why.clone());
        }
        (self.make)(config).map_err(|why| format!("{why:#}"))
    }

    fn without_one(&self, overlay: &Overlay, why: &str) -> Option<Fitted<T>> {
        let each = overlay.each();
        if each.len() > MOST_TRIED {
            return None;
        }
        let tried = each.into_iter().filter_map(|one| {
            let rest = overlay.clone().without(std::slice::from_ref(&one));
            // Some change only what it has made.
            let (_, others) = self.base.with_overlay(&rest);
            let overlay = rest.without(&others);
            let made = self.try_on(&overlay).ok()?;
            let one = Dropped { why: why.to_owned(), ..one };
            let dropped = std::iter::once(one).chain(others).collect();
            Some(Fitted { made, overlay, dropped })
        });
        tried.min_by_key(|fitted| fitted.dropped.len())
    }

    fn one_by_one(&self, overlay: &Overlay, alone: T) -> Fitted<T> {
        let (mut left, mut made) = (overlay.each(), alone);
        for _ in 0..PASSES {
            let before = left.len();
            let mut place = 0;
            while let Some(one) = left.get(place).cloned() {
                let mut without = left.clone();
                without.remove(place);
                match self.try_on(&overlay.clone().without(&without)) {
                    Ok(with) => (made, left) = (with, without),
                    Err(why) => {
                        if let Some(known) = left.get_mut(place) {
                            *known = Dropped { why, ..one };
                        }
                        place += 1;
                    }
                }
            }
            // What was laid may have made room for what was not.
            if left.is_empty() || left.len() == before {
                break;
            }
        }
        let overlay = overlay.clone().without(&left);
        Fitted { made, overlay, dropped: left }
    }
}
