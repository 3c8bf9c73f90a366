//! The client: one connection that is kept, one request after the other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks whether the gateway is ready.
const PAUSE: Duration = Duration::from_millis(200);

/// A connection to the gateway.
pub(super) struct Client {
    address: String,
    patience: Duration,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(super) fn new(address: &str, patience: Duration) -> Self {
        Self { address: address.to_owned(), patience, connection: None }
    }

    /// Waits until the gateway has an engine and the model's tokenizer.
    pub(super) fn until_ready(&mut self) -> Result<(), String> {
        let end = Instant::now() + self.patience;
        let ready = "kvasir_pool_tokenizer_ready{model=\"kvasir-demo\"} 1";
        loop {
            let page = self.send("GET /metrics HTTP/1.1\r\n", "");
            if page.is_ok_and(|(status, page)| status == 200 && page.contains(ready)) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err("the gateway does not get ready".to_owned());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Sends a chat.
    pub(super) fn post(&mut self, body: &str) -> Result<(), String> {
        let line = "POST /v1/chat/completions HTTP/1.1\r\ncontent-type: application/json\r\n";
        match self.send(line, body)? {
            (200, _) => Ok(()),
            (status, answer) => Err(format!("the gateway answered {status}: {answer}")),
        }
    }

    fn send(&mut self, head: &str, body: &str) -> Result<(u16, String), String> {
        let answer = self.exchange(head, body);
        if answer.is_err() {
            self.connection = None;
        }
        answer.map_err(|error| format!("{}: {error}", self.address))
    }

    fn exchange(&mut self, head: &str, body: &str) -> std::io::Result<(u16, String)> {
        let mut connection = match self.connection.take() {
            Some(kept) => kept,
            None => {
                let stream = TcpStream::connect(&self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.patience))?;
                BufReader::new(stream)
            }
        };
        let (address, len) = (&self.address, body.len());
        let request = format!("{head}host: {address}\r\ncontent-length: {len}\r\n\r\n{body}");
        connection.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let mut len = None;
        loop {
            line.clear();
            if connection.read_line(&mut line)? == 0 || line == "\r\n" {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                len = value.trim().parse().ok();
            }
        }
        // Answers of the simulated engine, the gateway's errors and its metrics say how long they are.
        let len: usize = len.ok_or_else(|| std::io::Error::other("an answer without a length"))?;
        let mut answer = vec![0; len];
        connection.read_exact(&mut answer)?;
        self.connection = Some(connection);
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }
}
