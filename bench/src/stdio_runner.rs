//! What a program in the runner costs beside a plugin that speaks gRPC itself. Calls of two tenants alternate, one with
//! each, so that other load on the machine affects both.

use std::{
    io::{self, BufRead as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    BenchError,
    caller::{Protocol, Target},
    closed_loop::{self, RunDurations, histogram},
    gateway_config,
    payload::TENANT,
    plugins::ECHO_NAMES,
    process::{KilledChild, RoleProcess},
    rig::Rig,
};

const PROGRAM_NAME: &str = "program";
const PROGRAM_TENANT: &str = "program";
/// How long the runner may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often calls to the two alternate.
const TURNS: usize = 4;

/// Measures the median time of calls to a program in the runner over that of calls to the echo plugin, both on a Unix
/// socket.
pub(crate) async fn measure(rig: &Rig, durations: RunDurations) -> Result<f64, BenchError> {
    let directory = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
    let [echo, program] =
        ["echo", "program"].map(|name| format!("unix://{}", directory.path().join(name).display()));
    let _echo = RoleProcess::start(&["plugin", ECHO_NAMES[0], &echo])?;
    let _runner = start_runner(rig.gateway_binary(), directory.path(), &program)?;
    let mut config = gateway_config::chain(&[(ECHO_NAMES[0], &echo), (PROGRAM_NAME, &program)]);
    config["tenants"]["list"] = json!([{ "id": TENANT }, { "id": PROGRAM_TENANT }]);
    config["bindings"][0]["tenant"] = json!(TENANT);
    config["bindings"][1]["tenant"] = json!(PROGRAM_TENANT);
    let gateway = rig.start_gateway(&config)?;
    let to_echo = Target::tool_calls(&gateway.data_addr, Protocol::Grpc)?;
    let to_program = Target {
        tokens: vec![gateway_config::token(PROGRAM_TENANT)?],
        ..Target::tool_calls(&gateway.data_addr, Protocol::Grpc)?
    };
    let (mut echo_callers, _) = closed_loop::run(to_echo.callers(1).await?, durations.warm_up).await?;
    let (mut program_callers, _) = closed_loop::run(to_program.callers(1).await?, durations.warm_up).await?;
    let (mut with_echo, mut with_program) = (histogram()?, histogram()?);
    let turn = durations.measured.div_f64(2.0 * TURNS as f64);
    for _ in 0..TURNS {
        let (callers, found) = closed_loop::run(echo_callers, turn).await?;
        echo_callers = callers;
        with_echo.add(found)?;
        let (callers, found) = closed_loop::run(program_callers, turn).await?;
        program_callers = callers;
        with_program.add(found)?;
    }
    Ok(with_program.value_at_quantile(0.5) as f64 / with_echo.value_at_quantile(0.5).max(1) as f64)
}

/// Answers every line at once, and costs almost nothing itself. Tools such as `sed -u` read byte by byte.
pub(crate) fn answer_lines() -> io::Result<()> {
    let (mut stdin, mut stdout, mut line) = (io::stdin().lock(), io::stdout(), String::new());
    while stdin.read_line(&mut line)? > 0 {
        let request_id = line.split_once(r#""request_id":""#).and_then(|(_, rest)| rest.split('"').next());
        let reply = json!({ "continue": {}, "request_id": request_id });
        stdout.write_all(format!("{reply}\n").as_bytes())?;
        stdout.flush()?;
        line.clear();
    }
    Ok(())
}

/// Starts the runner with the program, and waits until it listens at `address` in `directory`.
fn start_runner(binary: &Path, directory: &Path, address: &str) -> Result<KilledChild, BenchError> {
    let file = json!({
        "data_dir": "homes",
        "plugins": [{
            "name": PROGRAM_NAME, "version": "1.0.0", "points": ["before_tool_call"],
            "command": [std::env::current_exe()?, "role", "line-program"],
            // Otherwise the runner would start another one in the middle.
            "limits": { "cpu": "1h" },
        }],
    });
    let path = directory.join("runner.yaml");
    std::fs::write(&path, file.to_string())?; // JSON is YAML
    let mut command = Command::new(binary);
    command.args(["runner", "stdio"]).arg(&path).args(["--listen", address]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = KilledChild(command.spawn().map_err(|error| format!("{}: {error}", binary.display()))?);
    let socket = address.trim_start_matches("unix://");
    let begun = Instant::now();
    while !Path::new(socket).exists() {
        if begun.elapsed() > START_TIMEOUT {
            return Err("the runner does not listen".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}
