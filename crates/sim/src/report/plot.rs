//! The comparison as a picture (SVG): how long clients wait, what caches are worth, how evenly the
//! work is spread.

use std::fmt::Write as _;

use super::{Comparison, PolicyReport};

const WIDTH: f64 = 1_080.0;
/// A panel's place and size.
type Frame = (f64, f64, f64, f64);
const PANELS: [Frame; 4] = [
    (70.0, 80.0, 440.0, 240.0),
    (600.0, 80.0, 440.0, 240.0),
    (70.0, 400.0, 440.0, 240.0),
    (600.0, 400.0, 440.0, 240.0),
];
/// The legend's first row, below the panels, and from one row to the next.
const LEGEND: (f64, f64) = (700.0, 22.0);
/// Colours that also those tell apart who see few of them.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b",
    "#000000", "#bcbd22",
];
/// Points of a curve.
const POINTS: usize = 160;

/// Four panels: distributions of TTFT and of end-to-end time, hit rates beside the ideal, and work
/// by replica from the busiest to the idlest.
#[must_use]
pub fn plot(comparison: &Comparison) -> String {
    let mut svg = String::new();
    let legend = Legend::of(comparison);
    head(&mut svg, comparison, legend.height);
    distribution(&mut svg, PANELS[0], "Time to first token", comparison, |r| &r.ttfts);
    distribution(&mut svg, PANELS[1], "End-to-end time", comparison, |r| &r.e2es);
    hit_rates(&mut svg, PANELS[2], comparison);
    work(&mut svg, PANELS[3], comparison);
    legend.draw(&mut svg, comparison);
    svg.push_str("</svg>\n");
    svg
}

fn head(svg: &mut String, comparison: &Comparison, height: f64) {
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
    );
    let _ = writeln!(svg, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>");
    let title = format!(
        "{}: {} requests, {} replicas, arrivals x {}",
        comparison.workload, comparison.requests, comparison.replicas, comparison.time_scale
    );
    text(svg, WIDTH / 2.0, 32.0, "middle", 18, &title);
}

fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// Names and colours, as many in a row as fit.
struct Legend {
    places: Vec<(f64, f64)>,
    /// Of the whole picture, which ends with it.
    height: f64,
}

impl Legend {
    fn of(comparison: &Comparison) -> Self {
        let (left, right) = (PANELS[0].0, WIDTH - 40.0);
        let (mut x, mut y) = (left, LEGEND.0);
        let mut places = Vec::with_capacity(comparison.policies.len());
        for report in &comparison.policies {
            // Letters of this size are about so wide; a name that fits no row is cut by the edge.
            let wide = 44.0 + 7.0 * report.label(comparison).len() as f64;
            if x > left && x + wide > right {
                (x, y) = (left, y + LEGEND.1);
            }
            places.push((x, y));
            x += wide;
        }
        Self { places, height: y + 30.0 }
    }

    fn draw(&self, svg: &mut String, comparison: &Comparison) {
        for (n, (report, (x, y))) in comparison.policies.iter().zip(&self.places).enumerate() {
            bar(svg, (*x, *y, 14.0, 14.0), colour(n));
            text(svg, x + 20.0, y + 12.0, "start", 12, &report.label(comparison));
        }
    }
}

/// The part of all requests that waited at most so long, on a logarithmic axis.
fn distribution(
    svg: &mut String,
    frame: Frame,
    title: &str,
    comparison: &Comparison,
    times: fn(&PolicyReport) -> &Vec<f64>,
) {
    let (x, y, width, height) = frame;
    border(svg, frame, title);
    let all = || comparison.policies.iter().map(times).filter(|times| !times.is_empty());
    let low = all().map(|t| quantile(t, 0.01)).fold(f64::MAX, f64::min);
    let high = all().map(|t| quantile(t, 1.0)).fold(0.0, f64::max);
    if high <= 0.0 {
        return;
    }
    let low = low.max(high / 1e6).max(1e-3).log10().floor();
    let high = high.log10().ceil().max(low + 1.0);
    let across =
        |ms: f64| x + width * ((ms.max(1e-9).log10() - low) / (high - low)).clamp(0.0, 1.0);
    let mut decade = low;
    while decade <= high {
        let at = across(10_f64.powf(decade));
        line(svg, (at, y), (at, y + height), "#e0e0e0");
        text(svg, at, y + height + 16.0, "middle", 11, &time_label(decade));
        decade += 1.0;
    }
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y + height * (1.0 - part);
        line(svg, (x, at), (x + width, at), "#e0e0e0");
        text(svg, x - 6.0, at + 4.0, "end", 11, &format!("{:.0} %", part * 100.0));
    }
    for (place, report) in comparison.policies.iter().enumerate() {
        let times = times(report);
        if times.is_empty() {
            continue;
        }
        let points = (0..=POINTS).map(|point| {
            let part = point as f64 / POINTS as f64;
            (across(quantile(times, part)), y + height * (1.0 - part))
        });
        curve(svg, points, colour(place));
    }
}

fn hit_rates(svg: &mut String, frame: Frame, comparison: &Comparison) {
    let (x, y, width, height) = frame;
    border(svg, frame, "Prompt tokens found in caches; dashed: one infinite cache");
    let highest = comparison.policies.iter().map(|report| report.token_hit_rate);
    let top = highest.fold(comparison.ideal_hit_rate, f64::max).max(0.01) * 1.15;
    let up = |rate: f64| y + height * (1.0 - (rate / top).clamp(0.0, 1.0));
    let slot = width / comparison.policies.len().max(1) as f64;
    for (place, report) in comparison.policies.iter().enumerate() {
        let (left, rate) = (x + slot * (place as f64 + 0.15), report.token_hit_rate);
        bar(svg, (left, up(rate), slot * 0.7, y + height - up(rate)), colour(place));
        // Below the bars, where no line crosses them; where they are narrow, in two rows.
        let row = if slot < 40.0 && place % 2 == 1 { 30.0 } else { 16.0 };
        let label = format!("{:.1} %", rate * 100.0);
        text(svg, left + slot * 0.35, y + height + row, "middle", 11, &label);
    }
    let ideal = up(comparison.ideal_hit_rate);
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {ideal:.1}H{:.1}\" stroke=\"#444\" stroke-dasharray=\"6 4\" fill=\"none\"/>",
        x + width
    );
    let label = format!("{:.1} %", comparison.ideal_hit_rate * 100.0);
    text(svg, x - 6.0, ideal + 4.0, "end", 11, &label);
}

/// Work of each replica over the mean of all, from the busiest on.
fn work(svg: &mut String, frame: Frame, comparison: &Comparison) {
    let (x, y, width, height) = frame;
    border(svg, frame, "Work of each replica over the mean, busiest first");
    let highest = comparison.policies.iter().map(|report| report.max_over_mean_work);
    let top = highest.fold(1.0, f64::max) * 1.1;
    let up = |share: f64| y + height * (1.0 - (share / top).clamp(0.0, 1.0));
    for share in [0.0, 0.5, 1.0, top / 1.1] {
        line(svg, (x, up(share)), (x + width, up(share)), "#e0e0e0");
        text(svg, x - 6.0, up(share) + 4.0, "end", 11, &format!("{share:.2}"));
    }
    let replicas = comparison.replicas.max(1);
    let step = width / replicas.saturating_sub(1).max(1) as f64;
    for rank in (0..replicas).step_by(replicas.div_ceil(16)) {
        let at = x + step * rank as f64;
        text(svg, at, y + height + 16.0, "middle", 11, &(rank + 1).to_string());
    }
    text(svg, x + width / 2.0, y + height + 32.0, "middle", 11, "replicas, by their work");
    for (place, report) in comparison.policies.iter().enumerate() {
        let mut work: Vec<f64> = report.work_by_replica.iter().map(|w| *w as f64).collect();
        work.sort_by(|a, b| b.total_cmp(a));
        let mean = work.iter().sum::<f64>() / work.len().max(1) as f64;
        if mean <= 0.0 {
            continue;
        }
        let points = work.iter().enumerate().map(|(n, w)| (x + step * n as f64, up(w / mean)));
        curve(svg, points, colour(place));
    }
}

/// The number below which a part of the (ascending) numbers lies.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    // The product is at most the length.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// A power of ten of milliseconds.
fn time_label(decade: f64) -> String {
    if decade >= 3.0 {
        format!("{} s", 10_f64.powf(decade - 3.0))
    } else {
        format!("{} ms", 10_f64.powf(decade))
    }
}

fn border(svg: &mut String, (x, y, width, height): Frame, title: &str) {
    text(svg, x, y - 10.0, "start", 13, title);
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"none\" stroke=\"#888\"/>"
    );
}

fn bar(svg: &mut String, (x, y, width, height): Frame, colour: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\" fill=\"none\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn curve(svg: &mut String, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
    svg.push_str("<path d=\"");
    for (place, (x, y)) in points.enumerate() {
        let _ = write!(svg, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
    }
    let _ = writeln!(svg, "\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>");
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size: u32, content: &str) {
    let mut escaped = String::with_capacity(content.len());
    for c in content.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            _ => escaped.push(c),
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{escaped}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_labels_are_times() {
        let mut svg = String::new();
        text(&mut svg, 0.0, 0.0, "start", 10, "a<b&c");
        assert!(svg.contains("a&lt;b&amp;c"));
        assert_eq!(time_label(1.0), "10 ms");
        assert_eq!(time_label(4.0), "10 s");
        assert!((quantile(&[1.0, 2.0, 3.0, 4.0], 0.5) - 2.0).abs() < 1e-9);
    }
}
