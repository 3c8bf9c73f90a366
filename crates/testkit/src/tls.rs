//! A front that ends TLS before a fake engine.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Ends TLS and passes the bytes on to a port of this machine. Dropping it closes everything.
#[derive(Debug)]
pub struct TlsFront {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

// === impl TlsFront ===

impl TlsFront {
    /// Listens on a free port of 127.0.0.1, in front of `to`.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(to: SocketAddr, config: ServerConfig) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    // Clients that do not believe us are none of the engine's business.
                    let _ = pass_on(acceptor, stream, to).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { addr, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `https://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(acceptor: TlsAcceptor, stream: TcpStream, to: SocketAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut outside = acceptor.accept(stream).await?;
    let mut inside = TcpStream::connect(to).await?;
    inside.set_nodelay(true)?;
    copy_bidirectional(&mut outside, &mut inside).await?;
    Ok(())
}
