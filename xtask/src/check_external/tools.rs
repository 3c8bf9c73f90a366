//! Installs what external checks need, each below `target/external` and nowhere else.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Need;

/// Where the checks' programs are.
pub(super) struct Tools {
    dir: PathBuf,
}

impl Tools {
    pub(super) fn new(root: &Path) -> Result<Self, String> {
        let dir = root.join("target/external");
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self { dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes sure that what a check needs is there; the program that runs its script, or why there
    /// is none.
    pub(super) fn ready(&self, name: &str, need: &Need) -> Result<PathBuf, String> {
        match need {
            Need::Program(program) => {
                quietly(Command::new(program).arg("--version"))?;
                Ok(PathBuf::from("bash"))
            }
            Need::Browser => {
                quietly(Command::new("chromium").arg("--version"))?;
                quietly(Command::new("node").arg("--version"))?;
                Ok(PathBuf::from("node"))
            }
            Need::Python(packages) => {
                let venv = self.venv(name);
                let installed = venv.join("installed");
                if !installed.is_file() {
                    quietly(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
                    let mut pip = Command::new(venv.join("bin/pip"));
                    quietly(pip.args(["install", "--quiet"]).args(*packages))?;
                    fs::write(&installed, "").map_err(|error| error.to_string())?;
                }
                Ok(PathBuf::from("bash")).map(|bash| match name {
                    "aiperf" => bash,
                    _ => venv.join("bin/python"),
                })
            }
            Need::Node(packages) => {
                quietly(Command::new("node").arg("--version"))?;
                let is_there =
                    |package: &&str| self.dir.join("node_modules").join(package).is_dir();
                if !packages.iter().all(is_there) {
                    let mut npm = Command::new("npm");
                    npm.args(["install", "--silent", "--no-save", "--prefix"]).arg(&self.dir);
                    quietly(npm.args(*packages))?;
                }
                Ok(PathBuf::from("node"))
            }
        }
    }

    /// The search path of a check: its own environment first.
    pub(super) fn path(&self, name: &str) -> OsString {
        let mut path = self.venv(name).join("bin").into_os_string();
        if let Some(others) = env::var_os("PATH") {
            path.push(":");
            path.push(others);
        }
        path
    }

    fn venv(&self, name: &str) -> PathBuf {
        self.dir.join(format!("venv-{name}"))
    }
}

/// The cargo that runs this.
pub(super) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// Runs a command; what it has to say is said only where it fails.
fn quietly(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
    Err(format!("{program} ended with {}: {last}", output.status))
}
