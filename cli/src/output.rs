//! Standard output: only data, as a table for people, or as JSON or YAML for programs. Only text for people has colours,
//! and only on a terminal.

use std::io::{self, ErrorKind, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::Exit;
use hookgate::telemetry::terminal;

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const GREEN: Style = AnsiColor::Green.on_default();
pub(super) const RED: Style = AnsiColor::Red.on_default();
pub(super) const YELLOW: Style = AnsiColor::Yellow.on_default();

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
        Output::Table => return show(&table(), exit),
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

/// Writes `text` to standard output unchanged, and returns `exit`. A closed pipe is not a failure.
pub(super) fn print(text: &str, exit: Exit) -> Exit {
    write(io::stdout().lock(), text, exit)
}

/// Like [`print`], for text that may have colours.
pub(super) fn show(text: &str, exit: Exit) -> Exit {
    write(stdout(), text, exit)
}

/// Standard output for text that may have colours: removes them unless a terminal shows them.
pub(super) fn stdout() -> AutoStream<StdoutLock<'static>> {
    let raw = io::stdout().lock();
    let choice = if terminal::has_colours(&raw) { ColorChoice::Always } else { ColorChoice::Never };
    AutoStream::new(raw, choice)
}

fn write(mut stdout: impl Write, text: &str, exit: Exit) -> Exit {
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit,
        Err(error) => Exit::failure(format!("standard output can't be written: {error}")),
    }
}

/// Widest column, in characters: the longest name. Longer values are cut, except in the last column.
const MAX_COLUMN_WIDTH: usize = 256;

/// Aligns rows of two or more cells in columns; control characters are blanked out.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // The table would wrap a long last cell, so it is added to the finished lines.
    table.add_rows(rows.iter().map(|row| row[..N - 1].iter().map(|cell| clipped(cell))));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.lines().zip(rows).map(|(line, row)| line + &printable(&row[N - 1]));
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

/// `text`, each line indented by `width`.
pub(super) fn indented(width: usize, text: &str) -> String {
    text.lines().map(|line| format!("{:width$}{line}\n", "")).collect()
}

/// `text` in one line, cut with an ellipsis if it is too wide for a column.
pub(super) fn clipped(text: &str) -> String {
    let text = printable(text);
    match text.chars().nth(MAX_COLUMN_WIDTH) {
        None => text,
        Some(_) => text.chars().take(MAX_COLUMN_WIDTH - 1).chain(['…']).collect(),
    }
}

/// `text` in one line, without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A text in a gateway's answer, in one line and without control characters; empty if `value` is no text.
pub(super) fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

/// Prints a note about the data to standard error.
pub(super) fn note(what: &str) {
    // The reader of one stream may not read the other.
    let _ = writeln!(io::stderr().lock(), "hookgate: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_is_too_wide_is_cut_short_unless_it_is_the_last() {
        let (fits, wide) = ("é".repeat(MAX_COLUMN_WIDTH), "é".repeat(100_000));
        let rows = [[&fits, "1", &wide], [&wide, "2", ""]].map(|row| row.map(|cell| cell.to_owned()));
        let cut = "é".repeat(MAX_COLUMN_WIDTH - 1);
        assert_eq!(columns(&rows), format!("{fits}  1  {wide}\n{cut}…  2\n"));
    }

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let rows = [["漢字", "1", "a\u{1b}[31m"], ["e\u{301}", "22", ""], ["abc\ndef", "", "b"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "漢字     1   a [31m\ne\u{301}        22\nabc def      b\n");
    }
}
