//! Colours, for a person at a terminal alone.

use std::io;

use crate::terminal;

#[derive(Clone, Copy)]
pub(super) enum Style {
    Bold,
    Dim,
    Green,
    Red,
    Yellow,
}

pub(super) struct Paint {
    coloured: bool,
}

impl Paint {
    /// For standard output.
    pub(super) fn of_stdout() -> Self {
        Paint { coloured: terminal::has_colours(&io::stdout()) }
    }

    pub(super) fn styled(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Green => 32,
            Style::Red => 31,
            Style::Yellow => 33,
        };
        if self.coloured && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
