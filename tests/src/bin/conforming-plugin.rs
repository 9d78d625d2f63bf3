//! The conforming plugin as a process of its own: `conforming-plugin SOCKET RULE`.

use std::{io, path::PathBuf};

use clap::Parser;
use hookgate_tests::conforming_plugin::{BrokenRule, run_at};

#[derive(Parser)]
struct Args {
    socket: PathBuf,
    #[arg(value_enum)]
    rule: BrokenRule,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let Args { socket, rule } = Args::parse();
    run_at(&socket, rule).await
}
