//! `kvasirctl` against a running gateway: both real binaries.

mod bundle;
mod connection;
mod degraded;
mod doctor;
mod pages;
mod reference;
mod routing;
mod shell;
mod shows;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::admin::{Admin, WRITE};

/// Built once, whoever asks first.
fn kvasirctl() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| beside("kvasirctl"))
}

/// The binary beside the gateway's; built where only the gateway's package was.
fn beside(name: &str) -> PathBuf {
    let gateway = Path::new(env!("CARGO_BIN_EXE_kvasir-gateway"));
    let path = gateway.with_file_name(name);
    if !path.exists() {
        let profile = gateway.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "-p", name, "--target-dir"]);
        build.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(build.status().unwrap().success(), "{name} cannot be built");
    }
    path
}

/// A home of its own, with a file of settings that names a gateway; removed when dropped.
pub(crate) struct Home(PathBuf);

impl Home {
    fn empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ctl-{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(path.join(".config/kvasir")).unwrap();
        Self(path)
    }

    /// For this gateway, with the token for changes.
    pub(crate) fn of(admin: &Admin) -> Self {
        let home = Self::empty();
        let text = format!("admin: http://{}\ntoken: {WRITE}\n", admin.addr);
        home.put(".config/kvasir/ctl.yaml", &text, 0o600);
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file with these permissions.
    fn put(&self, name: &str, text: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(kvasirctl());
        command.args(args).current_dir(&self.0).env("HOME", &self.0);
        for name in ["KVASIR_ADMIN", "KVASIR_CTL_CONFIG", "XDG_CONFIG_HOME", "RUST_LOG"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        self.finish(self.command(args)).await
    }

    async fn finish(&self, mut command: Command) -> Ran {
        let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        Ran::of(&ran)
    }

    /// A command that ends well: what it prints.
    async fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args).await;
        assert_eq!(ran.status, Some(0), "{args:?}: {}{}", ran.out, ran.err);
        ran.out
    }

    async fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--output", "json"]].concat()).await;
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}"))
    }

    /// A command that fails: what it says.
    async fn fails(&self, args: &[&str]) -> String {
        let ran = self.run(args).await;
        assert!(ran.status.is_some_and(|status| status != 0), "{args:?}: {}", ran.out);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran.err
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a command ended.
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { status: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}
