//! Standard output: only data, as a table for people, or as JSON or YAML for programs. No colour.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::Exit;

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A table for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Prints `value` in the chosen format, with `table` as the one for people, and returns `exit`.
pub(super) fn data(
    output: Output,
    value: &impl Serialize,
    table: impl FnOnce() -> String,
    exit: Exit,
) -> Exit {
    let text = match output {
        Output::Table => Ok(table()),
        Output::Json => {
            serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|e| e.to_string())
        }
        Output::Yaml => serde_saphyr::to_string(value).map_err(|error| error.to_string()),
    };
    match text {
        Ok(text) => print(&text, exit),
        Err(error) => Exit::failure(format!("the answer can't be written in this format: {error}")),
    }
}

/// Writes `text` to standard output, and returns `exit`. A closed pipe is not a failure.
pub(super) fn print(text: &str, exit: Exit) -> Exit {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit,
        Err(error) => Exit::failure(format!("standard output can't be written: {error}")),
    }
}

/// Widest column, in characters: the longest name. Longer values are cut, except in the last column.
const MAX_COLUMN_WIDTH: usize = 256;

/// Aligns rows in columns; control characters are blanked out.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().take(MAX_COLUMN_WIDTH).count());
        }
    }
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let cell = printable(cell);
            if at + 1 == N {
                line += &cell;
            } else {
                let cell = clipped(&cell);
                line += &format!("{cell}{}", " ".repeat(width - cell.chars().count() + 2));
            }
        }
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// `text`, cut with an ellipsis if it is too wide for a column.
fn clipped(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(MAX_COLUMN_WIDTH) {
        None => text.into(),
        Some(_) => text.chars().take(MAX_COLUMN_WIDTH - 1).chain(['…']).collect::<String>().into(),
    }
}

/// `text` in one line, without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Prints a note about the data to standard error.
pub(super) fn note(what: &str) {
    // The reader of one stream may not read the other.
    let _ = writeln!(std::io::stderr().lock(), "hookgate: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_is_too_wide_is_cut_short_unless_nothing_stands_behind_it() {
        let (fits, wide) = ("é".repeat(MAX_COLUMN_WIDTH), "é".repeat(100_000));
        let rows = [[&fits, "1", &wide], [&wide, "2", ""]].map(|row| row.map(|cell| cell.to_owned()));
        let cut = "é".repeat(MAX_COLUMN_WIDTH - 1);
        assert_eq!(columns(&rows), format!("{fits}  1  {wide}\n{cut}…  2\n"));
    }
}
