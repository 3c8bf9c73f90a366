//! The file of settings: which gateway, and what to show it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use kvasir_config::{EngineUrl, Secret};
use serde::Deserialize;

use super::secret::{self, Read};

/// The variable that names the file.
const VARIABLE: &str = "KVASIR_CTL_CONFIG";

/// What the file says, paths made whole.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) admin: Option<EngineUrl>,
    /// The token, and the file it is from.
    pub(super) token: Option<(String, PathBuf)>,
    pub(super) ca_file: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    admin: Option<String>,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

/// Where the file is, and whether somebody named it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    named: bool,
}

impl Place {
    /// The one that is given, or the variable's, or the usual one; none where there is no home.
    pub(super) fn of(given: Option<&Path>) -> Option<Self> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let named = given.map(Path::to_owned).or_else(|| set(VARIABLE).map(PathBuf::from));
        if let Some(path) = named {
            return Some(Self { path, named: true });
        }
        let config = set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let config = config.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")));
        Some(Self { path: config?.join("kvasir/ctl.yaml"), named: false })
    }

    /// What it says; nothing where it is not there and nobody named it.
    pub(super) fn read(&self) -> Result<Settings> {
        let path = &self.path;
        if !self.named && !path.exists() {
            return Ok(Settings::default());
        }
        let read = Read::of(path)?;
        let keys = self.keys(&read)?;
        if keys.token.is_some() {
            read.check_private(path)?;
        }
        if keys.token.is_some() && keys.token_file.is_some() {
            bail!("{}: give one of `token` and `token_file`", path.display());
        }
        let beside = |file: PathBuf| path.parent().unwrap_or(Path::new("")).join(file);
        let admin = keys.admin.map(|text| crate::args::connect::admin_url(&text)).transpose();
        let admin = admin.map_err(|why| anyhow!("{}: admin: {why}", path.display()))?;
        let token = match (keys.token, keys.token_file.map(beside)) {
            (Some(token), _) => {
                let token = secret::check(token.expose());
                let token = token.with_context(|| format!("{}: token", path.display()))?;
                Some((token, path.clone()))
            }
            (None, Some(file)) => {
                let token = secret::token(&file);
                let place = || format!("{}: token_file", path.display());
                Some((token.with_context(place)?, file))
            }
            (None, None) => None,
        };
        Ok(Settings { admin, token, ca_file: keys.ca_file.map(beside) })
    }

    /// The message of a text that is not understood may have parts of it: of a file with a token only
    /// the place is told.
    fn keys(&self, read: &Read) -> Result<Keys> {
        let text = &read.text;
        if text.trim().is_empty() {
            return Ok(Keys::default());
        }
        serde_saphyr::from_str(text).map_err(|error| {
            let place = error.location().map(|at| format!(":{}:{}", at.line(), at.column()));
            let known = "`admin`, `token` or `token_file`, and `ca_file`, each with a text";
            let place = place.unwrap_or_default();
            anyhow!("{}{place}: this is not understood; there are {known}", self.path.display())
        })
    }
}
