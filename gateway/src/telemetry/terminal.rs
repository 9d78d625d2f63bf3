//! Detects what a terminal can do.

use std::{env, io::IsTerminal};

/// Whether text on `stream` may be coloured: it is a terminal with colours, and `NO_COLOR` (no-color.org) is
/// not set.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    stream.is_terminal() && !refused && !is_dumb
}
