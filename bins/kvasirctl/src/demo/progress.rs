//! What is shown on standard error while a policy is played: a bar on a terminal, else a line
//! when it begins and one when it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_demo::{Played, Progress, Target, Workload, play};

use crate::live_line::{self, LiveLine};

const REDRAW: Duration = Duration::from_millis(200);

/// Where progress is shown.
#[derive(Debug)]
pub(super) struct Watch;

impl Watch {
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
        let mut line = LiveLine::new(Duration::ZERO);
        if !line.is_seen() {
            self.note(&format!("{policy}: playing for {:.0} s", time.as_secs_f64()));
        }
        let playing = play(targets, workload, time, &progress);
        tokio::pin!(playing);
        let mut redraw = tokio::time::interval(REDRAW);
        let played = loop {
            tokio::select! {
                played = &mut playing => break played,
                _ = redraw.tick(), if line.is_seen() => {
                    line.draw(|| bar(policy, begin.elapsed(), time, &progress));
                }
            }
        };
        line.clear();
        let (answered, failed) = (progress.answered(), progress.failed());
        self.note(&format!("{policy}: {answered} answers, {failed} failed"));
        played
    }
}

/// One line, of less than 80 columns.
fn bar(policy: &str, elapsed: Duration, time: Duration, progress: &Progress) -> String {
    let millis = |time: Duration| usize::try_from(time.as_millis()).unwrap_or(usize::MAX);
    let bar = live_line::bar(millis(elapsed), millis(time).max(1));
    let answered = progress.answered();
    format!(
        "{policy:<19} {bar} {:>3.0} s {answered:>6} answers",
        elapsed.as_secs_f64().min(time.as_secs_f64()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_line::BAR;

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
        assert!(at(25).len() < 80);
    }
}
