//! What goes to standard output: data and nothing else, as a table for people, as JSON or YAML for programs. No colour.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::Exit;

/// The form of what is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Prints `value` in the form asked for, of which `table` is the one for people, and gives back `exit`.
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
        Err(error) => Exit::failure(format!("the answer can't be written in this form: {error}")),
    }
}

/// Writes `text` to standard output, and gives back `exit`. A reader that has seen enough is no failure.
pub(super) fn print(text: &str, exit: Exit) -> Exit {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit,
        Err(error) => Exit::failure(format!("standard output can't be written: {error}")),
    }
}

/// Rows as columns; what a terminal would take for a command is blanked out.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", printable(cell)));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// `text` in one line, without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
