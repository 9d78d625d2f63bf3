//! Chains of plugins, and their callers.

mod caller;
mod flow;
mod groups;
mod observers;
mod poison;
mod start;
mod tool_answers;
