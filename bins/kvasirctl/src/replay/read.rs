//! Decision logs line by line, with their places, and a progress bar on a terminal.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_balance::record::Line;

use crate::live_line::LiveLine;

/// No line is as long.
const MAX_LINE: u64 = 256 << 20;
const REDRAW: Duration = Duration::from_millis(100);
/// Lines between two looks at the clock.
const LOOK: u64 = 256;

/// Why a file cannot be read, with its place.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

/// Where a line is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) file: &'a Path,
    /// From 1.
    pub(super) line: u64,
}

impl Place<'_> {
    pub(super) fn shown(self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}

/// Hands out every line of the files, in order. A last line that is cut off, as a crash leaves it,
/// is left out: the files that end so. Where no file has a line `start`, they are no decision log.
pub(super) fn each_line(
    files: &[PathBuf],
    mut take: impl FnMut(Place<'_>, &Line) -> Result<(), String>,
) -> Result<Vec<PathBuf>, Unreadable> {
    let mut progress = Progress::over(files);
    let mut cut_off = Vec::new();
    let mut started = false;
    let mut take = |place: Place<'_>, line: &Line| {
        started |= matches!(line, Line::Start(_));
        take(place, line)
    };
    for file in files {
        if !read(file, &mut progress, &mut take)? {
            cut_off.push(file.clone());
        }
    }
    if started {
        return Ok(cut_off);
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Err(Unreadable(format!("{}: no decision log: there is no line `start`", names.join(", "))))
}

/// `false` where the last line is cut off.
fn read(
    file: &Path,
    progress: &mut Progress,
    take: &mut impl FnMut(Place<'_>, &Line) -> Result<(), String>,
) -> Result<bool, Unreadable> {
    let failed = |error: std::io::Error| Unreadable(format!("{}: {error}", file.display()));
    if file.is_dir() {
        let name = file.display();
        return Err(Unreadable(format!(
            "{name}: a directory: give the files of one pool in it, {name}/MODEL.*.jsonl"
        )));
    }
    let mut reader = BufReader::with_capacity(1 << 18, File::open(file).map_err(failed)?);
    let mut text = Vec::new();
    for line in 1.. {
        let place = Place { file, line };
        let at = |why: String| Unreadable(format!("{}: {why}", place.shown()));
        text.clear();
        let bytes = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut text).map_err(failed)?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 >= MAX_LINE {
            return Err(at("the line is too long".to_owned()));
        }
        progress.read(line, bytes as u64);
        match serde_json::from_slice(&text) {
            Ok(parsed) => take(place, &parsed).map_err(at)?,
            // Nothing can follow: it ends where the file does. A file of a log has a first line.
            Err(_) if line > 1 && !text.ends_with(b"\n") => return Ok(false),
            Err(error) => return Err(at(format!("no line of a decision log: {error}"))),
        }
    }
    Ok(true)
}

/// How much of the files was read.
struct Progress {
    line: LiveLine,
    read: u64,
    bytes: u64,
}

impl Progress {
    fn over(files: &[PathBuf]) -> Self {
        let size = |file: &PathBuf| file.metadata().map_or(0, |found| found.len());
        let bytes = files.iter().map(size).sum();
        Self { line: LiveLine::late(REDRAW), read: 0, bytes }
    }

    fn read(&mut self, line: u64, bytes: u64) {
        self.read += bytes;
        if line.is_multiple_of(LOOK) {
            let (read, bytes) = (self.read, self.bytes);
            self.line
                .draw(|| format!("read {} of {} MiB", super::percent(read, bytes), bytes >> 20));
        }
    }
}
