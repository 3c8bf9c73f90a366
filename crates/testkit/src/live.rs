//! Real vLLM servers for tests that are run on purpose: started by a command of the machine's own,
//! from the environment variable `KVASIR_LIVE_VLLM`. See `docs/live-vllm.md`.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client;

/// The environment variable with the shell command that becomes one server. The command finds the
/// ports in `PORT` (HTTP), `KV_PUB` and `KV_REPLAY` (event endpoints as vLLM takes them; that of the NIXL
/// connector's side channel where vLLM looks for it), and further arguments of `vllm serve` as `"$@"`. It should `exec` the server.
const COMMAND: &str = "KVASIR_LIVE_VLLM";

/// How long a server may take to come up on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(600);

/// One server; ended with all of its processes when dropped.
#[derive(Debug)]
pub struct LiveServer {
    command: String,
    args: Vec<String>,
    child: Option<Child>,
    ports: [u16; 4],
    log: PathBuf,
}

impl LiveServer {
    /// Starts a server with further arguments, its log in `logs`; it is not up yet.
    ///
    /// # Panics
    /// Without `KVASIR_LIVE_VLLM`: a test that was asked for must not pass by doing nothing.
    ///
    /// # Errors
    /// No port, no log file, or no process.
    pub fn start(args: &[&str], logs: &Path) -> io::Result<Self> {
        let command = std::env::var(COMMAND)
            .unwrap_or_else(|_| panic!("{COMMAND} says how a server is started"));
        let ports = free_ports()?;
        let mut server = Self {
            command,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            child: None,
            ports,
            log: logs.join(format!("vllm-{}.log", ports[0])),
        };
        server.restart()?;
        Ok(server)
    }

    /// Starts it again on the same ports, after [`Self::kill`].
    ///
    /// # Errors
    /// No log file, or no process.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let [http, publisher, replay, side_channel] = self.ports;
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("sh");
        command.args(["-c", &self.command, "live"]).args(&self.args);
        command
            .env("PORT", http.to_string())
            // vLLM binds where it sees `::`; this form is loopback all the same.
            .env("KV_PUB", format!("tcp://[::ffff:127.0.0.1]:{publisher}"))
            .env("KV_REPLAY", format!("tcp://127.0.0.1:{replay}"))
            .env("VLLM_NIXL_SIDE_CHANNEL_HOST", "127.0.0.1")
            .env("VLLM_NIXL_SIDE_CHANNEL_PORT", side_channel.to_string())
            .env("VLLM_SERVER_DEV_MODE", "1")
            .env("PYTHONHASHSEED", "0")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// `kill -9`, to all of its processes at once.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = child.wait();
    }

    /// Waits until it answers; how long that took.
    ///
    /// # Panics
    /// When it ends, or takes longer than ten minutes.
    pub async fn until_up(&mut self) -> Duration {
        let begun = Instant::now();
        loop {
            if client::get(self.addr(), "/health").await.is_ok_and(|answer| answer.status == 200) {
                return begun.elapsed();
            }
            let ended = self
                .child
                .as_mut()
                .is_none_or(|child| child.try_wait().map_or(true, |status| status.is_some()));
            assert!(!ended, "the server ended: {}", self.log.display());
            assert!(begun.elapsed() < PATIENCE, "it does not come up: {}", self.log.display());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Where its HTTP server is.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[0]).into()
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Its event publisher, to connect to.
    #[must_use]
    pub fn publisher(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.ports[1])
    }

    /// Its replay socket.
    #[must_use]
    pub fn replay(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.ports[2])
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_ports() -> io::Result<[u16; 4]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Held together, so that they differ.
    let held = [bind()?, bind()?, bind()?, bind()?];
    let mut ports = [0; 4];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
