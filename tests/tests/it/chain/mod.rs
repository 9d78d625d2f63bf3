//! Chains of plugins, and their callers.

mod caller;
mod flow;
mod groups;
mod hooks;
mod known_hooks;
mod observers;
mod poison;
mod reads;
mod start;
mod tool_answers;
mod tools;
