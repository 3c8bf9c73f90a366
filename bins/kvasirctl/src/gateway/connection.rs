//! Where the gateway is and what it is shown: from arguments, the environment and the file of settings.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use kvasir_admin_client::AdminClient;
use kvasir_config::EngineUrl;

use super::file::{Place, Settings};
use super::secret;
use crate::args::ConnectArgs;
use crate::args::connect::admin_url;
use crate::{engine_origin, say};

/// The variable that names the address.
const VARIABLE: &str = "KVASIR_ADMIN";

/// Where the gateway is, what it is shown, and who said so.
pub(crate) struct Connection {
    url: EngineUrl,
    url_from: String,
    token: Option<(String, PathBuf)>,
    /// A token that is for another address.
    withheld: Option<String>,
    ca_file: Option<PathBuf>,
    file: Option<Place>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Connection {
    /// What arguments say wins over the environment, and that over the file.
    pub(super) fn of(args: &ConnectArgs) -> Result<Self> {
        let address = &args.address;
        let file = Place::of(args.config.as_deref());
        let settings = file.as_ref().map(Place::read).transpose()?.unwrap_or_default();
        let (url, url_from) = match (&address.admin, from_environment()?) {
            (Some(url), _) => (url.clone(), "--admin".to_owned()),
            (None, Some(url)) => (url, VARIABLE.to_owned()),
            (None, None) => match (&settings.admin, &file) {
                (Some(url), Some(file)) => (url.clone(), file.path.display().to_string()),
                _ => bail!("no gateway is named. {}", how_to_name(file.as_ref())),
            },
        };
        let given = address.token_file.as_ref();
        let given = given.map(|path| Ok::<_, anyhow::Error>((secret::token(path)?, path.clone())));
        let given = given.transpose().context("--token-file")?;
        let (token, withheld) = match given {
            Some(token) => (Some(token), None),
            None => of_file(&settings, &url),
        };
        let ca_file = address.ca_file.clone().or(settings.ca_file);
        if address.ca_file.is_some() && !url.is_https() {
            bail!("--ca-file: {url} (from {url_from}) says no https");
        }
        Ok(Self { url, url_from, token, withheld, ca_file, file })
    }

    /// A client of it.
    pub(super) fn client(&self) -> Result<AdminClient> {
        let origin = engine_origin::of_url_by(&self.url, self.ca_file.as_deref())?;
        if self.token.is_some() && !self.url.is_https() && !is_loopback(&self.url) {
            say(&format!("{} is asked without TLS: the token can be read on the way", self.url));
        }
        Ok(AdminClient::new(origin, self.token())?)
    }

    /// The token that is shown.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|(token, _)| token.as_str())
    }

    /// Who named the address.
    pub(super) fn url_from(&self) -> &str {
        &self.url_from
    }

    /// The file of settings, for people.
    pub(super) fn file(&self) -> String {
        file_name(self.file.as_ref())
    }

    /// How another gateway is named.
    pub(super) fn how_to_name(&self) -> String {
        how_to_name(self.file.as_ref())
    }

    /// Which token was shown.
    pub(super) fn shown(&self) -> String {
        match (&self.token, &self.withheld) {
            (Some((_, path)), _) => format!("the token is from {}", path.display()),
            (None, Some(why)) => why.clone(),
            (None, None) => "no token was sent".to_owned(),
        }
    }
}

fn from_environment() -> Result<Option<EngineUrl>> {
    match std::env::var(VARIABLE) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(admin_url(&text).map_err(|why| anyhow!("{VARIABLE}: {why}"))?)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error) => bail!("{VARIABLE}: {error}"),
    }
}

/// The file's token goes to the file's address only, where it has one: whoever gets somebody to name
/// another address would get the token, too.
fn of_file(settings: &Settings, url: &EngineUrl) -> (Option<(String, PathBuf)>, Option<String>) {
    match (&settings.token, &settings.admin) {
        (Some((_, path)), Some(own)) if own != url => {
            let path = path.display();
            (None, Some(format!("no token was sent: the one of {path} is for {own}")))
        }
        (token, _) => (token.clone(), None),
    }
}

fn file_name(file: Option<&Place>) -> String {
    file.map_or_else(
        || "the file --config names".to_owned(),
        |file| file.path.display().to_string(),
    )
}

fn how_to_name(file: Option<&Place>) -> String {
    format!(
        "Name the gateway's admin API with --admin http://HOST:PORT, the variable {VARIABLE}, or \
         `admin:` in {}",
        file_name(file)
    )
}

fn is_loopback(url: &EngineUrl) -> bool {
    let host = url.authority().host();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
