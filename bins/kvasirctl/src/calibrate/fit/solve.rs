//! Least squares of a few unknowns, none below 0.

/// Unknowns.
pub(super) const COSTS: usize = 6;

/// How little of a column may be left, of 1, for it to count as one of its own.
const INDEPENDENT: f64 = 1e-10;

/// One equation: counts times unknowns are a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) counts: [f64; COSTS],
    pub(super) value: f64,
}

/// The unknowns, none below 0, with the least sum of squares, and that sum. `None` where no set of
/// columns has a solution.
///
/// The best solution sets some unknowns to 0 and is free in the others; with six unknowns all 63
/// choices are tried. Of those that are equally good the first counts.
pub(super) fn non_negative(rows: &[Row]) -> Option<([f64; COSTS], f64)> {
    let scales: [f64; COSTS] = std::array::from_fn(|column| {
        let squares: f64 = rows.iter().map(|row| row.counts[column].powi(2)).sum();
        squares.sqrt()
    });
    let mut best: Option<([f64; COSTS], f64)> = None;
    for chosen in 1_u32..1 << COSTS {
        let columns: Vec<usize> = (0..COSTS).filter(|column| chosen >> column & 1 == 1).collect();
        if columns.len() > rows.len() || columns.iter().any(|column| scales[*column] <= 0.0) {
            continue;
        }
        let Some(scaled) = normal_equations(rows, &columns, &scales) else { continue };
        let mut costs = [0.0; COSTS];
        columns.iter().zip(&scaled).for_each(|(column, x)| costs[*column] = x / scales[*column]);
        if costs.iter().any(|cost| !cost.is_finite() || *cost < 0.0) {
            continue;
        }
        let error = rows.iter().map(|row| residual(row, &costs).powi(2)).sum();
        if best.is_none_or(|(_, least)| error < least) {
            best = Some((costs, error));
        }
    }
    best
}

fn residual(row: &Row, costs: &[f64; COSTS]) -> f64 {
    row.counts.iter().zip(costs).map(|(count, cost)| count * cost).sum::<f64>() - row.value
}

/// Solves the normal equations of some columns, each scaled to length 1, by elimination; `None`
/// where a column depends on others.
fn normal_equations(rows: &[Row], columns: &[usize], scales: &[f64; COSTS]) -> Option<Vec<f64>> {
    let scaled = |row: &Row, column: usize| row.counts[column] / scales[column];
    // Each line holds one equation and, last, its right side.
    let mut lines: Vec<Vec<f64>> = columns
        .iter()
        .map(|&a| {
            let product = |b: usize| rows.iter().map(|row| scaled(row, a) * scaled(row, b)).sum();
            let right = rows.iter().map(|row| scaled(row, a) * row.value).sum();
            columns.iter().map(|&b| product(b)).chain([right]).collect()
        })
        .collect();
    let size = columns.len();
    for at in 0..size {
        // The matrix is symmetric and its diagonal positive: no line has to be swapped.
        let pivot = lines[at].clone();
        if pivot[at] < INDEPENDENT {
            return None;
        }
        for line in lines.iter_mut().skip(at + 1) {
            let factor = line[at] / pivot[at];
            line.iter_mut().zip(&pivot).for_each(|(own, other)| *own -= factor * other);
        }
    }
    let mut solved = vec![0.0; size];
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|other| lines[at][other] * solved[other]).sum();
        solved[at] = (lines[at][size] - known) / lines[at][at];
    }
    Some(solved)
}
