//! An h2 engine in bare frames, which can say what no library would.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;

pub(crate) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// `:status: 200` in HPACK.
pub(crate) const OK: &[u8] = &[0x88];

/// The engine's end of a connection.
pub(crate) struct Frames(TcpStream);

impl Frames {
    /// Says hello, and how many streams it takes.
    pub(crate) async fn greet(mut stream: TcpStream, most_streams: u32) -> Option<Self> {
        stream.read_exact(&mut [0; 24]).await.ok()?;
        let mut frames = Self(stream);
        let mut settings = vec![0, 3];
        settings.extend_from_slice(&most_streams.to_be_bytes());
        frames.send(SETTINGS, 0, 0, &settings).await;
        Some(frames)
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        // Where the gateway has gone it does not matter any more.
        let _ = self.0.write_all(&frame).await;
    }

    async fn next(&mut self) -> Option<(u8, u8, u32)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
    }

    /// The stream of the next request, when all of it is there; `None` at the connection's end.
    pub(crate) async fn request(&mut self) -> Option<u32> {
        self.stream(|kind, flags| matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0).await
    }

    /// The same as soon as its head is there.
    pub(crate) async fn head(&mut self) -> Option<u32> {
        self.stream(|kind, _| kind == HEADERS).await
    }

    /// That of the next frame which is what is waited for, by kind and flags.
    async fn stream(&mut self, is_it: impl Fn(u8, u8) -> bool) -> Option<u32> {
        loop {
            let (kind, flags, stream) = self.next().await?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await,
                _ if is_it(kind, flags) => return Some(stream),
                _ => {}
            }
        }
    }

    pub(crate) async fn answer(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS, stream, OK).await;
        self.send(DATA, END_STREAM, stream, b"ok").await;
    }

    pub(crate) async fn reset(&mut self, stream: u32, code: u32) {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    pub(crate) async fn go_away(&mut self, last: u32, code: u32) {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()).await;
    }

    /// Answers all there is.
    pub(crate) async fn serve(mut self) {
        while let Some(stream) = self.request().await {
            self.answer(stream).await;
        }
    }
}
