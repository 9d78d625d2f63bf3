//! From SIGTERM to the end of the process.

mod end;
mod load;
mod watch;
mod writes;
