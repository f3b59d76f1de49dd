//! Aligned tables.

use super::palette::{Palette, Tone};
use super::{fit, printable, width};

/// Spaces between two columns.
const GAP: usize = 2;

/// A piece of text in a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Text with a meaning.
    pub fn new(tone: Tone, text: impl AsRef<str>) -> Self {
        Self { text: printable(text.as_ref()), tone }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(Tone::Plain, text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(Tone::Plain, text)
    }
}

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a heading per column.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
    /// Columns are at least this wide.
    widths_min: Vec<usize>,
}

impl Table {
    /// An empty table. A heading that begins with `>` is of a column of numbers.
    pub fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(rest) => (rest, Align::Right),
            None => (*heading, Align::Left),
        };
        let widths_min = vec![0; headings.len()];
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new(), widths_min }
    }

    /// An empty table with the columns of this one, as wide as they are here.
    pub fn continued(&self) -> Self {
        Self { columns: self.columns.clone(), rows: Vec::new(), widths_min: self.widths(None) }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        row.resize_with(self.columns.len(), Cell::default);
        self.rows.push(row);
    }

    /// The lines of the table, headings first. With `columns_max` the last column is cut, and if that
    /// is not enough the whole line.
    pub fn lines(&self, palette: Palette, columns_max: Option<usize>) -> Vec<String> {
        let widths = self.widths(columns_max);
        let heading: Vec<Cell> =
            self.columns.iter().map(|(heading, _)| Cell::new(Tone::Dim, heading)).collect();
        let all = std::iter::once(&heading).chain(&self.rows);
        all.map(|row| self.line(row, &widths, palette, columns_max)).collect()
    }

    fn widths(&self, columns_max: Option<usize>) -> Vec<usize> {
        let headings = self.columns.iter().zip(&self.widths_min);
        let mut widths: Vec<usize> =
            headings.map(|((heading, _), least)| width(heading).max(*least)).collect();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                widths[column] = widths[column].max(width(&cell.text));
            }
        }
        if let (Some(columns_max), Some(last)) = (columns_max, widths.len().checked_sub(1)) {
            let before: usize = widths[..last].iter().map(|width| width + GAP).sum();
            widths[last] = widths[last].min(columns_max.saturating_sub(before));
        }
        widths
    }

    fn line(&self, row: &[Cell], widths: &[usize], palette: Palette, columns_max: Option<usize>) -> String {
        let mut line = String::new();
        let mut room = columns_max.unwrap_or(usize::MAX);
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            let columns = widths[column].min(room);
            let text = fit(&cell.text, columns);
            let padding = " ".repeat(columns - width(&text));
            let painted = palette.paint(cell.tone, &text);
            match self.columns[column].1 {
                Align::Right => line.push_str(&format!("{padding}{painted}")),
                Align::Left if last => line.push_str(&painted),
                Align::Left => line.push_str(&format!("{painted}{padding}")),
            }
            room = room.saturating_sub(widths[column] + GAP);
            if !last && room > 0 {
                line.push_str(&" ".repeat(GAP));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&["NAME", ">WAIT", "WHY"]);
        table.row(["prepare", "0.40s", "WaitingForQuota: 2 of 3 cpu are in use"]);
        table.row(["train-the-model", "12.1s"]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        let lines = sample().lines(Palette::None, None);
        assert_eq!(lines[0], "NAME              WAIT  WHY");
        assert_eq!(lines[1], "prepare          0.40s  WaitingForQuota: 2 of 3 cpu are in use");
        assert_eq!(lines[2], "train-the-model  12.1s");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in 1..60 {
            for line in sample().lines(Palette::None, Some(columns)) {
                assert!(width(&line) <= columns, "{columns}: {line:?}");
            }
        }
        assert_eq!(sample().lines(Palette::None, Some(38))[1], "prepare          0.40s  WaitingForQuo…");
    }
}
