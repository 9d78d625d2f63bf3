//! Runs programs as plugins: each reads a call as a line of JSON from standard input and writes its reply as a line to
//! standard output (docs/writing-a-plugin-shell.md).
//!
//! ```text
//!   gateway ──► Server ──► RunnerPlugin ──► ProgramPool ──► Program ──► your program
//!               one socket  one per entry    per tenant      a process, with its own folder and limits
//! ```
//!
//! A program belongs to one tenant. It has a private folder and limits. Dropping a `Program` in the middle of a call ends
//! the process and its children.
//!
//! Linux only.
#![warn(missing_docs)]
#![cfg(target_os = "linux")]

mod call_log;
mod call_messages;
mod cgroup;
mod dialect;
mod digest_file;
mod environment;
mod executable;
mod exit;
mod file;
mod home;
mod instances;
mod kaged;
mod launch;
mod librefang;
mod offers;
mod output;
mod payload;
mod plugin;
mod plugin_entry;
mod plugin_folder;
mod pool;
mod process_list;
mod processes;
mod program;
mod program_host;
mod reply;
mod runner;
mod system_calls;
mod task_limit;
mod tree_limits;
mod watch;

pub use file::{FileError, RunnerFile};
pub use launch::{LAUNCH, LaunchError, launch};
pub use runner::{RunError, Runner};
