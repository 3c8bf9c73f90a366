//! Opening a connection: name, TCP, TLS, each by one deadline.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::certificate;
use crate::dns::Names;
use crate::failure::{Failure, Phase};
use crate::io::{Io, Wire};
use crate::origin::Inner;
use crate::socket::prepare;

/// A century.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Until when there must be a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    patience: Duration,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        // Beyond what a clock can say it is as good as never.
        let at = Instant::now().checked_add(patience).unwrap_or_else(|| Instant::now() + NEVER);
        Self { at, patience }
    }

    /// What comes of `what` in time.
    pub(crate) async fn of<T>(
        &self,
        phase: Phase,
        what: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        timeout_at(self.at, work).await.map_err(|_| {
            let ms = self.patience.as_millis();
            Failure::new(phase, format!("no connection within {ms} ms: {what}"))
        })
    }
}

/// Opens a connection to `origin`.
pub(crate) async fn dial(names: &Names, origin: &Inner, deadline: Deadline) -> Result<Io, Failure> {
    let host = &origin.host;
    let found = deadline
        .of(Phase::Dns, &format!("still looking up `{host}`"), names.lookup(host, origin.port))
        .await?;
    let addresses = found
        .map_err(|error| Failure::new(Phase::Dns, format!("cannot look up `{host}`: {error}")))?;
    let stream = tcp(&addresses, deadline).await?;
    let Some(tls) = &origin.tls else { return Ok(Io::new(Wire::Plain(stream))) };
    let failed = |why: String| Failure::new(Phase::Tls, format!("TLS with {host}: {why}"));
    let name = tls.name(host).ok_or_else(|| failed("no name to verify".to_owned()))?;
    let connector = TlsConnector::from(tls.config(origin.http2));
    let handshake = connector.connect(name, stream);
    let what = format!("the TLS handshake with {host} did not end");
    let stream = deadline
        .of(Phase::Tls, &what, handshake)
        .await?
        .map_err(|error| failed(certificate::why(&error)))?;
    if origin.http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(failed("the engine does not offer h2 (ALPN)".to_owned()));
    }
    Ok(Io::new(Wire::Tls(Box::new(stream))))
}

/// Tries the addresses one after the other, each with its share of the time that is left.
async fn tcp(addresses: &[SocketAddr], deadline: Deadline) -> Result<TcpStream, Failure> {
    let mut last = None;
    for (at, address) in addresses.iter().enumerate() {
        let left = deadline.at.saturating_duration_since(Instant::now());
        let others = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        let share = Deadline { at: Instant::now() + left / others, ..deadline };
        let what = format!("TCP to {address} is not answered");
        match share.of(Phase::Tcp, &what, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                prepare(&stream);
                return Ok(stream);
            }
            Ok(Err(error)) => {
                last = Some(Failure::new(Phase::Tcp, format!("TCP to {address}: {error}")));
            }
            Err(late) => last = Some(late),
        }
    }
    Err(last.unwrap_or_else(|| Failure::new(Phase::Dns, "no address to connect to")))
}
