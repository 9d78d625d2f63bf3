//! Runs a gateway under callgrind and reads what it counted. Unlike times, counts are nearly the same in every run.

use std::{collections::HashMap, fs, path::Path, process::Command};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::{BenchError, gateway_process::GatewayProcess};

/// The functions of the C library that allocate.
const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];

/// What the gateway's busiest thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadCosts {
    /// Instructions of user space.
    pub(crate) instructions: u64,
    /// Calls that allocate or move memory.
    pub(crate) allocations: u64,
}

/// A gateway under callgrind, which counts nothing yet.
pub(crate) struct CountedGateway {
    pub(crate) process: GatewayProcess,
    counts: TempDir,
}

impl CountedGateway {
    pub(crate) fn start(binary: &Path, config: &Value) -> Result<Self, BenchError> {
        let counts = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--tool=callgrind", "--separate-threads=yes", "--instr-atstart=no"]);
        command.arg(format!("--callgrind-out-file={}", counts.path().join("counts").display()));
        command.arg(binary);
        let process = GatewayProcess::start_as(command, config)
            .map_err(|error| format!("{error} (this needs the Debian package `valgrind`)"))?;
        Ok(CountedGateway { process, counts })
    }

    /// Counts from here on.
    pub(crate) fn begin(&self) -> Result<(), BenchError> {
        self.control("--instr=on")
    }

    /// What was counted since then.
    pub(crate) fn end(&self) -> Result<ThreadCosts, BenchError> {
        self.control("--dump")?;
        let mut busiest = ThreadCosts { instructions: 0, allocations: 0 };
        for file in fs::read_dir(self.counts.path())? {
            let costs = parse(&fs::read_to_string(file?.path())?)?;
            if costs.instructions > busiest.instructions {
                busiest = costs;
            }
        }
        Ok(busiest)
    }

    fn control(&self, what: &str) -> Result<(), BenchError> {
        let pid = self.process.id().to_string();
        let said = Command::new("callgrind_control").args([what, &pid]).output()?;
        if !said.status.success() {
            return Err(format!("callgrind_control {what}: {}", String::from_utf8_lossy(&said.stderr)).into());
        }
        Ok(())
    }
}

/// Reads the file of one thread (Valgrind's manual, "Callgrind Format Specification").
fn parse(counts: &str) -> Result<ThreadCosts, BenchError> {
    let mut costs = ThreadCosts { instructions: 0, allocations: 0 };
    // A name is written once, with a number that stands for it later.
    let (mut names, mut callee) = (HashMap::new(), "");
    for line in counts.lines() {
        let Some((key, value)) = line.split_once(['=', ':']) else { continue };
        match key {
            "fn" | "cfn" => {
                let (number, name) = value.split_once(' ').unwrap_or((value, ""));
                let name = match name {
                    "" => names.get(number).copied().unwrap_or_default(),
                    name => *names.entry(number).insert_entry(name).get(),
                };
                if key == "cfn" {
                    callee = name;
                }
            }
            "calls" if ALLOCATORS.contains(&callee) => {
                costs.allocations += value.split(' ').next().unwrap_or_default().parse::<u64>()?;
            }
            "totals" => costs.instructions = value.trim().parse()?,
            _ => {}
        }
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_file_says_its_instructions_and_allocations() {
        let counts = "events: Ir\nfn=(1) main\n16 400\ncfn=(2) malloc\ncalls=3 0\n16 900\ncfn=(3) memcpy\n\
                      calls=7 0\n16 70\nfn=(4) push\n20 4\ncfn=(2)\ncalls=2 0\n20 600\ntotals: 1974\n";
        assert_eq!(parse(counts).unwrap(), ThreadCosts { instructions: 1974, allocations: 5 });
    }
}
