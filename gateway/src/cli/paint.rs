//! Colours, for a person at a terminal alone.

use std::io::{self, IsTerminal};

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
    /// For standard output: colours when it is a terminal that has any, and `NO_COLOR` (no-color.org) is not set.
    pub(super) fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        Paint { coloured: io::stdout().is_terminal() && !refused && !is_dumb }
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
