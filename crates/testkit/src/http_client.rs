//! A client for HTTP/2 and for TLS. Unlike [`crate::client`] it does not show bytes: it is hyper's.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(20);

/// A request's body.
pub type RequestBody = UnsyncBoxBody<Bytes, Infallible>;

/// A whole body of these bytes.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).boxed_unsync()
}

/// One connection.
#[derive(Debug)]
pub struct HttpClient {
    sender: Sender,
    connection: JoinHandle<hyper::Result<()>>,
    /// The server's certificate in DER, under TLS.
    pub certificate: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailers, if there were any.
    pub trailers: Option<HeaderMap>,
}

impl HttpClient {
    /// HTTP/2 in plain text, by prior knowledge.
    ///
    /// # Errors
    ///
    /// When nobody answers, or in another protocol.
    pub async fn h2c(addr: SocketAddr) -> io::Result<Self> {
        Self::http2(connect(addr).await?, None, &http2::Builder::new(TokioExecutor::new())).await
    }

    /// The same, with a window of so many bytes for each stream.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::h2c`].
    pub async fn h2c_with_window(addr: SocketAddr, window: u32) -> io::Result<Self> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        Self::http2(connect(addr).await?, None, &builder).await
    }

    /// TLS to `localhost`: HTTP/2 where that is agreed on, else HTTP/1.1.
    ///
    /// # Errors
    ///
    /// When nobody answers, or the handshake fails, as far as the client sees that.
    pub async fn tls(addr: SocketAddr, config: Arc<ClientConfig>) -> io::Result<Self> {
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let stream = connect(addr).await?;
        let stream = within(TlsConnector::from(config).connect(name, stream)).await?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.map(|certificate| certificate.to_vec());
        if session.alpn_protocol() == Some(b"h2") {
            let builder = http2::Builder::new(TokioExecutor::new());
            return Self::http2(stream, certificate, &builder).await;
        }
        let shaking = http1::Builder::new().handshake(TokioIo::new(stream));
        let (sender, connection) =
            within(async { shaking.await.map_err(io::Error::other) }).await?;
        let connection = tokio::spawn(connection);
        Ok(Self { sender: Sender::Http1(sender), connection, certificate })
    }

    async fn http2<S>(
        stream: S,
        certificate: Option<Vec<u8>>,
        builder: &http2::Builder<TokioExecutor>,
    ) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shaking = builder.handshake(TokioIo::new(stream));
        let (sender, connection) =
            within(async { shaking.await.map_err(io::Error::other) }).await?;
        let connection = tokio::spawn(connection);
        Ok(Self { sender: Sender::Http2(sender), connection, certificate })
    }

    /// Whether HTTP/2 is spoken.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Sends a request and gives the answer as it begins.
    ///
    /// # Errors
    ///
    /// When the connection or the stream fails.
    pub async fn begin(&mut self, request: Request<RequestBody>) -> io::Result<Response<Incoming>> {
        within(async {
            match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await.map_err(io::Error::other)?;
                    sender.send_request(request).await
                }
                Sender::Http2(sender) => {
                    sender.ready().await.map_err(io::Error::other)?;
                    sender.send_request(request).await
                }
            }
            .map_err(io::Error::other)
        })
        .await
    }

    /// Sends a request and gives the whole answer.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::begin`], and when the answer breaks off.
    pub async fn ask(&mut self, request: Request<RequestBody>) -> io::Result<Whole> {
        let (head, body) = self.begin(request).await?.into_parts();
        let body = within(async { body.collect().await.map_err(io::Error::other) }).await?;
        let trailers = body.trailers().cloned();
        Ok(Whole { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    /// A JSON POST.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::ask`].
    pub async fn post(&mut self, path: &str, body: &serde_json::Value) -> io::Result<Whole> {
        let request = Request::post(self.uri(path))
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(full(body.to_string()));
        self.ask(request.map_err(io::Error::other)?).await
    }

    /// A GET.
    ///
    /// # Errors
    ///
    /// As [`HttpClient::ask`].
    pub async fn get(&mut self, path: &str) -> io::Result<Whole> {
        let request = Request::get(self.uri(path)).header("host", "localhost").body(full(""));
        self.ask(request.map_err(io::Error::other)?).await
    }

    /// A path as the target of a request: HTTP/2 names scheme and host there.
    #[must_use]
    pub fn uri(&self, path: &str) -> String {
        if self.is_http2() { format!("http://localhost{path}") } else { path.to_owned() }
    }

    /// Waits until the server has ended the connection; an error where it broke it.
    ///
    /// # Errors
    ///
    /// Whatever ended it.
    pub async fn closed(self) -> io::Result<()> {
        let connection = self.connection;
        // Held: without anybody who could send, the client itself would end the connection.
        let sender = self.sender;
        let ended = within(async { connection.await.map_err(io::Error::other) }).await?;
        drop(sender);
        ended.map_err(io::Error::other)
    }
}

/// The next data of an answer; `None` at its end.
///
/// # Errors
///
/// When the stream fails.
pub async fn data<B>(body: &mut B) -> io::Result<Option<Bytes>>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    within(async {
        loop {
            match body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(io::Error::other(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    })
    .await
}

async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = within(TcpStream::connect(addr)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}
