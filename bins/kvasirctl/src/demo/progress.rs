//! What is shown on standard error while a policy is played: a bar on a terminal, else a line
//! when it begins and one when it ends.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_demo::{Played, Progress, Target, Workload, play};

const BAR: usize = 30;
const REDRAW: Duration = Duration::from_millis(200);

/// Where progress is shown.
#[derive(Debug)]
pub(super) struct Watch {
    terminal: bool,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { terminal: stderr().is_terminal() }
    }

    /// A line that stays.
    pub(super) fn note(&self, line: &str) {
        super::note(line);
    }

    /// Plays and shows how far it is.
    pub(super) async fn play(
        &self,
        policy: &str,
        targets: &[Target],
        workload: &Arc<Workload>,
        time: Duration,
    ) -> Played {
        let progress = Arc::new(Progress::default());
        let begin = Instant::now();
        if !self.terminal {
            self.note(&format!("{policy}: playing for {:.0} s", time.as_secs_f64()));
        }
        let playing = play(targets, workload, time, &progress);
        tokio::pin!(playing);
        let mut redraw = tokio::time::interval(REDRAW);
        let played = loop {
            tokio::select! {
                played = &mut playing => break played,
                _ = redraw.tick(), if self.terminal => {
                    draw(&bar(policy, begin.elapsed(), time, &progress));
                }
            }
        };
        if self.terminal {
            // Erases the bar.
            draw("\x1b[K");
        }
        let (answered, failed) = (progress.answered(), progress.failed());
        self.note(&format!("{policy}: {answered} answers, {failed} failed"));
        played
    }
}

/// One line, of less than 80 columns.
fn bar(policy: &str, elapsed: Duration, time: Duration, progress: &Progress) -> String {
    let part = (elapsed.as_secs_f64() / time.as_secs_f64().max(0.001)).min(1.0);
    // The part is from 0 to 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to BAR")]
    let full = (part * BAR as f64) as usize;
    let answered = progress.answered();
    format!(
        "{policy:<19} [{:<BAR$}] {:>3.0} s {answered:>6} answers\x1b[K",
        "#".repeat(full),
        elapsed.as_secs_f64().min(time.as_secs_f64()),
    )
}

/// Draws over the line. A terminal that cannot be written to is no reason to stop.
fn draw(text: &str) {
    let mut err = stderr().lock();
    let _ = write!(err, "\r{text}");
    let _ = err.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_and_fits() {
        let progress = Progress::default();
        let at = |seconds| {
            bar("latency", Duration::from_secs(seconds), Duration::from_secs(20), &progress)
        };
        assert_eq!(at(0).matches('#').count(), 0);
        assert_eq!(at(10).matches('#').count(), BAR / 2);
        assert_eq!(at(25).matches('#').count(), BAR);
        assert!(at(25).contains(" 20 s "), "{}", at(25));
        assert!(at(25).len() < 80 + "\x1b[K".len());
    }
}
