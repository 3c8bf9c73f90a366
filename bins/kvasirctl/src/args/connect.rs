//! Which gateway a command asks, and in what form it prints.

use std::path::PathBuf;

use kvasir_config::EngineUrl;

use super::unshown::Unshown;

/// Where the admin API is.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "The gateway")]
pub(crate) struct AddressArgs {
    /// The admin API's URL, http://host:port or https://host:port (or the variable `KVASIR_ADMIN`, or
    /// `admin:` in the file of settings).
    #[arg(long, value_name = "URL", value_parser = Unshown(admin_url))]
    pub(crate) admin: Option<EngineUrl>,
    /// The file with the bearer token; only its owner may read it.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Authorities (PEM) that are believed in TLS, instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// Where the admin API is, and the file that says so.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    pub(crate) address: AddressArgs,
    /// The file of settings: `admin`, `token` or `token_file`, `ca_file`. Without it
    /// `$KVASIR_CTL_CONFIG`, else kvasir/ctl.yaml below `$XDG_CONFIG_HOME` or ~/.config.
    #[arg(long, value_name = "FILE", help_heading = "The gateway")]
    pub(crate) config: Option<PathBuf>,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Table,
    /// The API's own document.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Where to ask and how to print.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    #[command(flatten)]
    pub(crate) print: OutputArgs,
}

/// How to print.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Printing")]
pub(crate) struct OutputArgs {
    /// The form of what is printed.
    #[arg(long, short, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// An admin API's URL: what an engine's may be.
pub(crate) fn admin_url(text: &str) -> Result<EngineUrl, String> {
    const FORM: &str = "expected http://HOST:PORT or https://HOST:PORT alone";
    // What is not understood may hold a password: not repeated.
    let bare = text.trim_end_matches('/');
    bare.parse().map_err(|_| FORM.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_host_and_port_and_never_repeated() {
        assert_eq!(admin_url("https://h:8081/").unwrap().to_string(), "https://h:8081");
        for text in ["h:8081", "http://u:hush@h:1", "http://h:1/api", "http://h:1?t=hush", ""] {
            let why = admin_url(text).unwrap_err();
            assert!(why.contains("expected") && !why.contains("hush"), "{text}: {why}");
        }
    }
}
