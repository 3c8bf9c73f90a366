//! An HTTP/1.1 client for tests that shows what arrives, as it arrives.
//!
//! It is written from the protocol and shares no code with the servers under test,
//! so it also checks their framing. It can stop at any byte, reset, close half, and
//! send what no proper client would. Every wait has a deadline.

mod parse;

pub use self::parse::Head;

use self::parse::{Framing, chunk_size, parse_head};
use bytes::{Buf as _, Bytes, BytesMut};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest chunk or declared body that is read.
const MAX_BODY: u64 = 256 << 20;

/// Longest head or event.
const MAX_HEAD: usize = 1 << 20;

/// A complete response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The head.
    pub head: Head,
    /// The body without its framing.
    pub body: Bytes,
}

impl Response {
    /// The body as JSON; `Null` when it is not JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as text, with replacement characters where it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One GET on a connection of its own.
///
/// # Errors
///
/// When the connection fails or the answer is not HTTP.
pub async fn get(addr: SocketAddr, path: &str) -> io::Result<Response> {
    let mut client = RawClient::connect(addr).await?;
    client.send("GET", path, &[], b"").await?;
    client.response().await
}

/// One POST of a JSON body on a connection of its own.
///
/// # Errors
///
/// When the connection fails or the answer is not HTTP.
pub async fn post(addr: SocketAddr, path: &str, body: &[u8]) -> io::Result<Response> {
    let mut client = RawClient::connect(addr).await?;
    client.send("POST", path, &[("content-type", "application/json")], body).await?;
    client.response().await
}

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    buf: BytesMut,
    /// Frames joined, for events that lie across frames.
    events: BytesMut,
    framing: Framing,
    head_request: bool,
    host: String,
    deadline: Duration,
}

impl RawClient {
    /// Connects, with `TCP_NODELAY` on and a deadline of 10 s for each wait.
    ///
    /// # Errors
    ///
    /// When the peer refuses or does not answer in time.
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let deadline = Duration::from_secs(10);
        let stream = within(deadline, TcpStream::connect(addr)).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buf: BytesMut::new(),
            events: BytesMut::new(),
            framing: Framing::None,
            head_request: false,
            host: addr.to_string(),
            deadline,
        })
    }

    /// Changes the longest time that one read or write may wait.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// When the socket is no longer connected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// When the peer is gone, or reads nothing until the deadline.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        within(self.deadline, self.stream.write_all(bytes)).await
    }

    /// Sends a request; `host` and, for a body, `content-length` are added.
    ///
    /// # Errors
    ///
    /// As [`RawClient::write`].
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        if !body.is_empty() || method == "POST" {
            all.push(("content-length", &length));
        }
        let mut bytes = self.request_head(method, path, &all).into_bytes();
        bytes.extend_from_slice(body);
        self.write(&bytes).await
    }

    /// Sends the head of a request whose body follows in chunks.
    ///
    /// # Errors
    ///
    /// As [`RawClient::write`].
    pub async fn start_chunked(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<()> {
        let mut all = headers.to_vec();
        all.push(("transfer-encoding", "chunked"));
        let head = self.request_head(method, path, &all);
        self.write(head.as_bytes()).await
    }

    /// Sends one chunk of the body. An empty one is not sent: it would end the body.
    ///
    /// # Errors
    ///
    /// As [`RawClient::write`].
    pub async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.write(&framed).await
    }

    /// Ends a chunked body.
    ///
    /// # Errors
    ///
    /// As [`RawClient::write`].
    pub async fn finish_chunks(&mut self) -> io::Result<()> {
        self.write(b"0\r\n\r\n").await
    }

    fn request_head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        self.head_request = method == "HEAD";
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head
    }

    /// Reads the next response head. Interim heads (1xx) are given like any other.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the peer closes first, `ConnectionReset` when it resets,
    /// `TimedOut` at the deadline, `InvalidData` when it is not an HTTP/1.x head.
    pub async fn head(&mut self) -> io::Result<Head> {
        loop {
            if let Some((head, length)) = parse_head(&self.buf)? {
                self.buf.advance(length);
                self.events.clear();
                self.framing = Framing::of(&head, self.head_request)?;
                return Ok(head);
            }
            if self.buf.len() > MAX_HEAD {
                return Err(invalid("the response head is too long"));
            }
            self.fill_some().await?;
        }
    }

    /// Reads the next piece of the body: one chunk of a chunked body, else what has
    /// arrived. `None` is the proper end of the body.
    ///
    /// # Errors
    ///
    /// As [`RawClient::head`]; `UnexpectedEof` also for a truncated body.
    pub async fn frame(&mut self) -> io::Result<Option<Bytes>> {
        match self.framing {
            Framing::None => Ok(None),
            Framing::Length(left) => {
                if self.buf.is_empty() {
                    self.fill_some().await?;
                }
                let here = self.buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.framing = Framing::length(left - here as u64);
                Ok(Some(self.buf.split_to(here).freeze()))
            }
            Framing::Chunked => self.next_chunk().await,
            Framing::UntilClose => {
                if self.buf.is_empty() && self.fill().await? == 0 {
                    self.framing = Framing::None;
                    return Ok(None);
                }
                Ok(Some(self.buf.split().freeze()))
            }
        }
    }

    async fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        let size = chunk_size(&self.line().await?)?;
        if size > MAX_BODY {
            return Err(invalid("the chunk is too long"));
        }
        if size == 0 {
            // Trailers are read and dropped.
            while !self.line().await?.is_empty() {}
            self.framing = Framing::None;
            return Ok(None);
        }
        let size = usize::try_from(size).map_err(|_| invalid("the chunk is too long"))?;
        while self.buf.len() < size + 2 {
            self.fill_some().await?;
        }
        let chunk = self.buf.split_to(size).freeze();
        match self.buf.split_to(2).as_ref() {
            b"\r\n" => Ok(Some(chunk)),
            _ => Err(invalid("a chunk is not followed by CRLF")),
        }
    }

    /// Reads to the next CRLF, which it drops.
    async fn line(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(end) = self.buf.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.buf.split_to(end).freeze();
                self.buf.advance(2);
                return Ok(line);
            }
            if self.buf.len() > MAX_HEAD {
                return Err(invalid("a line of the chunked body is too long"));
            }
            self.fill_some().await?;
        }
    }

    /// Reads the next server-sent event and gives its data lines; comments and other
    /// fields are left out. `None` is the proper end of the body.
    ///
    /// # Errors
    ///
    /// As [`RawClient::frame`]; `InvalidData` when the body ends inside an event.
    pub async fn event(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.events.windows(2).position(|pair| pair == b"\n\n") {
                let event = self.events.split_to(end);
                self.events.advance(2);
                let event = String::from_utf8_lossy(&event);
                let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
                let data: Vec<&str> = data.map(|d| d.strip_prefix(' ').unwrap_or(d)).collect();
                if !data.is_empty() {
                    return Ok(Some(data.join("\n")));
                }
                continue;
            }
            if self.events.len() > MAX_HEAD {
                return Err(invalid("an event is too long"));
            }
            match self.frame().await? {
                Some(frame) => self.events.extend_from_slice(&frame),
                None if self.events.is_empty() => return Ok(None),
                None => return Err(invalid("the body ends inside an event")),
            }
        }
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    ///
    /// As [`RawClient::frame`].
    pub async fn body(&mut self) -> io::Result<Bytes> {
        let mut body = self.events.split();
        while let Some(frame) = self.frame().await? {
            body.extend_from_slice(&frame);
            if body.len() as u64 > MAX_BODY {
                return Err(invalid("the body is too long"));
            }
        }
        Ok(body.freeze())
    }

    /// Reads a whole final response; interim heads are skipped.
    ///
    /// # Errors
    ///
    /// As [`RawClient::head`] and [`RawClient::frame`].
    pub async fn response(&mut self) -> io::Result<Response> {
        let mut head = self.head().await?;
        while (100..200).contains(&head.status) {
            head = self.head().await?;
        }
        let body = self.body().await?;
        Ok(Response { status: head.status, head, body })
    }

    /// Reads bytes without looking at them; empty when the peer has closed.
    ///
    /// # Errors
    ///
    /// `ConnectionReset` or `TimedOut`.
    pub async fn read_raw(&mut self) -> io::Result<Bytes> {
        if self.buf.is_empty() {
            self.fill().await?;
        }
        Ok(self.buf.split().freeze())
    }

    /// Ends the connection with a reset.
    ///
    /// # Errors
    ///
    /// When the socket option cannot be set.
    pub fn abort(self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }

    /// Ends the connection in order: the same as dropping it.
    pub fn close(self) {}

    /// Closes this end's direction only; answers can still be read.
    ///
    /// # Errors
    ///
    /// When the peer is gone.
    pub async fn close_write(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    async fn fill(&mut self) -> io::Result<usize> {
        within(self.deadline, self.stream.read_buf(&mut self.buf)).await
    }

    /// Reads at least one byte.
    async fn fill_some(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

async fn within<T>(deadline: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(deadline, work).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
