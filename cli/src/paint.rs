//! Colours, only on a terminal.

use std::io;

use hookgate::telemetry::terminal;

#[derive(Clone, Copy)]
pub(super) enum TextStyle {
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
    /// Colours for standard output.
    pub(super) fn for_stdout() -> Self {
        Paint { coloured: terminal::has_colours(&io::stdout()) }
    }

    pub(super) fn styled(&self, style: TextStyle, text: &str) -> String {
        let code = match style {
            TextStyle::Bold => 1,
            TextStyle::Dim => 2,
            TextStyle::Green => 32,
            TextStyle::Red => 31,
            TextStyle::Yellow => 33,
        };
        if self.coloured && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
