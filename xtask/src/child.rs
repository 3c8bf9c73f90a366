//! Programs that run beside a task, and end with it.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A program that runs until this is dropped.
pub(crate) struct Running(Child);

impl Running {
    /// Its number as a process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program, and what `find` finds in a line of its output.
pub(crate) fn started(
    mut command: Command,
    patience: Duration,
    find: fn(&str) -> Option<&str>,
) -> Result<(Running, String), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("NO_COLOR", "1");
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    let (found, place) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
        child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
    ];
    for stream in streams.into_iter().flatten() {
        let found = found.clone();
        // Reads on to the end: a pipe that nobody empties stops its writer.
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if let Some(word) = find(&line) {
                    // Nobody waits for a second one.
                    let _ = found.send(word.to_owned());
                }
            }
        });
    }
    let running = Running(child);
    let place = place.recv_timeout(patience);
    place.map(|place| (running, place)).map_err(|_| format!("{program} does not start"))
}
