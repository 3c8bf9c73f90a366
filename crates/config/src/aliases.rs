//! The names of models: each belongs to one pool.

use std::collections::HashMap;

use crate::bounds::Wrong;
use crate::model::Config;

/// More other names than any model has.
const MOST_ALIASES: usize = 256;

impl Config {
    /// Whether every name, a pool's model or an alias, belongs to one pool.
    pub(crate) fn check_names(&self) -> Result<(), Wrong> {
        let mut models = HashMap::new();
        for (i, pool) in self.pools.iter().enumerate() {
            if models.insert(pool.model.as_str(), i).is_some() {
                let message = format!("model `{}` has two pools", pool.model);
                return Err((format!("pools[{i}].model"), message));
            }
        }
        let mut aliases: HashMap<&str, usize> = HashMap::new();
        for (i, pool) in self.pools.iter().enumerate() {
            if pool.aliases.len() > MOST_ALIASES {
                let message = format!("must be at most {MOST_ALIASES} names");
                return Err((format!("pools[{i}].aliases"), message));
            }
            for (j, alias) in pool.aliases.iter().enumerate() {
                let fail = |message| Err((format!("pools[{i}].aliases[{j}]"), message));
                if alias.is_empty() {
                    return fail("must not be empty".to_owned());
                }
                if let Some(other) = models.get(alias.as_str()) {
                    return fail(format!("`{alias}` is the model of pools[{other}]"));
                }
                if let Some(other) = aliases.insert(alias, i) {
                    return fail(format!("`{alias}` is an alias in pools[{other}] already"));
                }
            }
        }
        Ok(())
    }
}
