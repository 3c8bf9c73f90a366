//! An engine whose answers the test writes itself, byte by byte, on the bare socket.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::SOON;

/// Tells nothing about itself (404 to every GET) and hands every POST to the test.
#[derive(Debug)]
pub(crate) struct Lockstep {
    addr: SocketAddr,
    exchanges: mpsc::UnboundedReceiver<Exchange>,
}

/// One request, read to its end, and the socket to answer on.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    stream: TcpStream,
}

impl Lockstep {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, exchanges) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, sender.clone()));
            }
        });
        Self { addr, exchanges }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) async fn next(&mut self) -> Exchange {
        timeout(SOON, self.exchanges.recv()).await.expect("no request came").unwrap()
    }
}

impl Exchange {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// One chunk of a chunked body.
    pub(crate) async fn chunk(&mut self, data: &[u8]) {
        let mut framed = format!("{:x}\r\n", data.len()).into_bytes();
        framed.extend_from_slice(data);
        framed.extend_from_slice(b"\r\n");
        self.write(&framed).await;
    }
}

async fn serve(mut stream: TcpStream, requests: mpsc::UnboundedSender<Exchange>) {
    stream.set_nodelay(true).unwrap();
    let mut buf = BytesMut::new();
    loop {
        let end = loop {
            if let Some(at) = buf.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buf).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(buf.split_to(end).to_vec()).unwrap();
        if !head.starts_with("POST ") {
            let nothing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(nothing).await.unwrap();
            continue;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().parse().unwrap();
        while buf.len() < length {
            assert_ne!(stream.read_buf(&mut buf).await.unwrap(), 0, "the request is truncated");
        }
        let _ = requests.send(Exchange { head, body: buf.to_vec(), stream });
        return;
    }
}
