//! Where the gateway is and what it is shown: from arguments, the environment and the file of settings.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use kvasir_admin_client::AdminClient;
use kvasir_config::EngineUrl;

use super::file::{Place, Settings};
use super::secret;
use crate::args::connect::admin_url;
use crate::args::{AddressArgs, ConnectArgs};
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
    /// Authorities that are for another address.
    other_ca: Option<String>,
    file: Option<Place>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Connection {
    /// What arguments say wins over the environment, and that over the file, which is read only for what
    /// they leave open.
    pub(super) fn of(args: &ConnectArgs) -> Result<Self> {
        let AddressArgs { admin, token_file, ca_file } = &args.address;
        let file = Place::of(args.settings.as_deref());
        let named = match admin {
            Some(url) => Some((url.clone(), "--admin".to_owned())),
            None => from_environment()?.map(|url| (url, VARIABLE.to_owned())),
        };
        let wants_ca = ca_file.is_none() && named.as_ref().is_none_or(|(url, _)| url.is_https());
        let is_asked = named.is_none() || token_file.is_none() || wants_ca;
        let mut settings = match file.as_ref().filter(|_| is_asked) {
            Some(file) => file.read()?,
            None => Settings::default(),
        };
        let (url, url_from) = match (named, &settings.admin, &file) {
            (Some(named), ..) => named,
            (None, Some(url), Some(file)) => (url.clone(), file.path.display().to_string()),
            _ => bail!("no gateway is named. {}", how_to_name(file.as_ref())),
        };
        let (token, withheld) = match token_file {
            Some(path) => {
                (Some((secret::token(path).context("--token-file")?, path.clone())), None)
            }
            None => token_of_file(&mut settings, &url)?,
        };
        if ca_file.is_some() && !url.is_https() {
            bail!("--ca-file: {url} (from {url_from}) says no https");
        }
        let (ca_file, other_ca) = match ca_file {
            Some(path) => (Some(path.clone()), None),
            None => ca_of_file(&settings, &url),
        };
        Ok(Self { url, url_from, token, withheld, ca_file, other_ca, file })
    }

    /// A client of it.
    pub(super) fn client(&self) -> Result<AdminClient> {
        let origin = engine_origin::of_url_by(&self.url, self.ca_file.as_deref())?;
        if self.token.is_some() && !self.url.is_https() && !self.url.is_loopback() {
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

    /// Where authorities were left out, since they are for another address: which, and what to do.
    pub(super) fn other_ca(&self) -> String {
        let hint = |why: &String| format!("; {why}: give --ca-file");
        self.other_ca.as_ref().map(hint).unwrap_or_default()
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

/// A token, and the file it is from; or why there is none.
type Shown = (Option<(String, PathBuf)>, Option<String>);

/// The file's token goes to the file's address only, where it has one: whoever gets somebody to name
/// another address would get the token, too.
fn token_of_file(settings: &mut Settings, url: &EngineUrl) -> Result<Shown> {
    let Some(token) = settings.token.take() else { return Ok((None, None)) };
    match settings.admin.as_ref().filter(|own| *own != url) {
        Some(own) => {
            let path = token.path().display();
            Ok((None, Some(format!("no token was sent: the one of {path} is for {own}"))))
        }
        None => Ok((Some(token.read()?), None)),
    }
}

/// The file's authorities are believed of the file's address only, where it has one: of another the
/// system's are; and which were left out.
fn ca_of_file(settings: &Settings, url: &EngineUrl) -> (Option<PathBuf>, Option<String>) {
    let Some(path) = settings.ca_file.as_ref().filter(|_| url.is_https()) else {
        return (None, None);
    };
    match settings.admin.as_ref().filter(|own| *own != url) {
        Some(own) => (None, Some(format!("the authorities of {} are for {own}", path.display()))),
        None => (Some(path.clone()), None),
    }
}

fn file_name(file: Option<&Place>) -> String {
    file.map_or_else(
        || "the file --settings names".to_owned(),
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
