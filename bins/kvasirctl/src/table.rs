//! Tables for people: aligned columns, and nothing in them that a terminal obeys.

use std::fmt::Write as _;

/// Between two columns.
const GAP: &str = "  ";

/// Rows under a head. Columns of numbers stand at the right.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    head: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
struct Column {
    name: &'static str,
    right: bool,
}

impl Table {
    /// With these columns; those that begin with `>` stand at the right.
    pub(crate) fn of(head: &[&'static str]) -> Self {
        let column = |name: &&'static str| match name.strip_prefix('>') {
            Some(name) => Column { name, right: true },
            None => Column { name, right: false },
        };
        Self { head: head.iter().map(column).collect(), rows: Vec::new() }
    }

    /// A further row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As text, with a line end after each row.
    pub(crate) fn text(&self) -> String {
        let width = |place: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(place));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(self.head[place].name.chars().count())
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let head: Vec<String> = self.head.iter().map(|column| column.name.to_owned()).collect();
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            text.push_str(&self.line(row, &widths));
            text.push('\n');
        }
        text
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), column) in row.iter().zip(widths).zip(&self.head) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            // Writing to a text cannot fail.
            let _ = match column.right {
                true => write!(line, "{cell:>width$}"),
                false => write!(line, "{cell:<width$}"),
            };
        }
        line.trim_end().to_owned()
    }
}

/// What others wrote, with its control characters escaped; `-` for nothing.
pub(crate) fn plain(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_unseen(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Characters that change the order or hide others.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_terminals_safe() {
        let mut table = Table::of(&["NAME", ">N"]);
        table.row(["a\u{1b}[2J".to_owned(), "7".to_owned()]);
        table.row([String::new(), "1234".to_owned()]);
        assert_eq!(table.text(), "NAME           N\na\\u{1b}[2J     7\n-           1234\n");
    }
}
