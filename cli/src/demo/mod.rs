//! `hookgate demo`: sends an agent's calls through the four extension points of a real gateway with real plugins, and
//! compares every answer with the expected one.
//!
//! [`stage`] is the environment, [`script`] lists the calls and expected answers, [`caller`] makes the calls,
//! [`model`] calls a model, [`screen`] shows all that. The demo uses the gateway as an operator and an agent would: a configuration file, HTTP,
//! gRPC, tokens.

use std::{collections::BTreeMap, fs};

use super::{Exit, model_client::ModelClient};

mod caller;
mod child;
mod model;
mod screen;
mod script;
mod stage;

use caller::Caller;
use script::{ExpectedAnswer, Scene, ScriptedCall};
use stage::Stage;

const TENANTS: [&str; 2] = ["acme", "globex"];

/// Runs the demo; with `keep` the gateway then serves until Ctrl-C.
pub(super) async fn run(keep: bool) -> Exit {
    let stop = match hookgate_sdk::stop_signal() {
        Ok(stop) => stop,
        Err(error) => return Exit::failure(error.to_string()),
    };
    let mut stop = std::pin::pin!(stop);
    // Boxed, because it holds a whole gateway. Dropping it ends the child processes.
    let played = tokio::select! {
        played = Box::pin(play()) => played,
        () = stop.as_mut() => return Exit::failure("the demo was interrupted"),
    };
    let ended = match played {
        Ok(DemoResult { mut stage, agents, observed }) => {
            if keep {
                invite(&stage, &agents);
                stop.await;
                stage.stop().await
            } else {
                close(stage, observed).await
            }
        }
        Err(difference) => Err(difference),
    };
    match ended {
        Ok(()) => Exit::ok(),
        Err(reason) => Exit::failure(reason),
    }
}

/// The callers by tenant, and a forger for each.
struct DemoAgents {
    honest: BTreeMap<&'static str, Caller>,
    forgers: BTreeMap<&'static str, Caller>,
}

impl DemoAgents {
    fn new(stage: &Stage) -> Result<Self, String> {
        let (mut honest, mut forgers) = (BTreeMap::new(), BTreeMap::new());
        for tenant in TENANTS {
            let signers = stage.signer(tenant).and_then(|signer| Ok((signer, stage.forger(tenant)?)));
            let (signer, forger) = signers.map_err(|error| error.to_string())?;
            honest.insert(tenant, Caller::new(stage.data_addr, signer)?);
            forgers.insert(tenant, Caller::new(stage.data_addr, forger)?);
        }
        Ok(DemoAgents { honest, forgers })
    }

    fn caller_for(&self, call: &ScriptedCall) -> Result<&Caller, String> {
        let callers = if call.forged { &self.forgers } else { &self.honest };
        callers.get(call.tenant).ok_or_else(|| format!("there is no caller for {}", call.tenant))
    }
}

/// A demo whose answers were all as expected.
struct DemoResult {
    stage: Stage,
    agents: DemoAgents,
    /// How many calls reached a chain of plugins.
    observed: usize,
}

/// Sets up the stage, makes every call, and compares the answers with the expected ones.
async fn play() -> Result<DemoResult, String> {
    let mut stage = Stage::set().await?;
    let players = DemoAgents::new(&stage)?;
    introduce(&stage);

    let mut answers = Vec::new();
    for scene in script::opening() {
        act(&players, scene, &mut answers).await?;
    }
    let (requests, questions) = model::play(&stage).await?;
    let killed = stage.tenant_auth.pid();
    stage.tenant_auth.kill()?;
    act(&players, script::outage(killed), &mut answers).await?;
    stage.bring_back().await?;
    act(&players, script::return_of(stage.tenant_auth.pid()), &mut answers).await?;

    compare(&answers)?;
    screen::title(&format!(
        "{} calls and {requests} requests to a model: every status, code and payload is as expected.",
        answers.len()
    ));
    let observed = questions + answers.iter().filter(|(call, _)| call.is_observed()).count();
    Ok(DemoResult { stage, agents: players, observed })
}

async fn act(
    players: &DemoAgents,
    scene: Scene,
    answers: &mut Vec<(ScriptedCall, ExpectedAnswer)>,
) -> Result<(), String> {
    screen::title(&scene.title);
    for call in scene.calls {
        let told = players.caller_for(&call)?.call(&call).await?;
        screen::call(&call, &told);
        answers.push((call, told.answer));
    }
    Ok(())
}

/// Compares the answers with the expected ones; the first difference is an error.
fn compare(answers: &[(ScriptedCall, ExpectedAnswer)]) -> Result<(), String> {
    for (number, (call, answer)) in answers.iter().enumerate() {
        let expected = call.expected();
        if *answer != expected {
            let number = number + 1;
            return Err(format!("call {number} differs\nexpected {expected:#?}\nobserved {answer:#?}"));
        }
    }
    Ok(())
}

fn introduce(stage: &Stage) {
    let (tenant_auth, audit_log) = (stage.tenant_auth.pid(), stage.audit_log.pid());
    let file = stage.path().join("hookgate.yaml");
    screen::line(format_args!("A gateway on {}, configured by {}", stage.data_addr, file.display()));
    screen::title("Plugins");
    screen::line("content-policy      in this process     redacts and limits the input of a model");
    screen::line(format_args!(
        "tenant-auth         {:<20}limits the tools that a tenant may use",
        format!("pid {tenant_auth}")
    ));
    screen::line("response-sanitizer  in this process     redacts and truncates the user's output");
    screen::line(format_args!("audit-log           {:<20}observes every call", format!("pid {audit_log}")));
}

/// Prints how to call the gateway with `--keep`.
fn invite(stage: &Stage, players: &DemoAgents) {
    let (data, ops) = (stage.data_addr, stage.ops_addr);
    screen::title("The gateway runs until Ctrl-C. Call it:");
    for (tenant, caller) in &players.honest {
        screen::line(format_args!("{}={}", tenant.to_uppercase(), caller.token()));
    }
    let calls = [
        ("before-llm-request", "ACME", r#"{"payload": {"text": "write to ada@example.com"}}"#),
        ("before-tool-call", "GLOBEX", r#"{"payload": {"tool_name": "orders.refund", "args": {}}}"#),
    ];
    for (point, token, body) in calls {
        screen::line(format_args!("\ncurl -i http://{data}/v1/{point} \\"));
        screen::line(format_args!(
            "  -H \"authorization: Bearer ${token}\" -H 'content-type: application/json' \\"
        ));
        screen::line(format_args!("  -d '{body}'"));
    }
    let agent = ModelClient::Openai.assignments(&format!("http://{data}"), "$ACME");
    screen::line(format_args!("\n{agent} python agent.py  # model `demo`"));
    screen::line(format_args!("\ncurl -i http://{ops}/readyz"));
    screen::line(format_args!("curl -s http://{ops}/metrics"));
    screen::line(format_args!("tail {}", stage.audit().display()));
}

/// Stops the gateway, and checks that the observer saw every call.
async fn close(mut stage: Stage, expected: usize) -> Result<(), String> {
    stage.stop().await?;
    let log =
        fs::read_to_string(stage.audit()).map_err(|error| format!("audit-log wrote nothing: {error}"))?;
    let written = log.lines().count();
    if written != expected {
        return Err(format!("audit-log wrote {written} lines; {expected} calls reached a chain"));
    }
    screen::line(format_args!(
        "audit-log wrote {written} lines, one for each call that reached a chain of plugins."
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_expected() -> Vec<(ScriptedCall, ExpectedAnswer)> {
        let scenes = script::opening().into_iter().chain([script::outage(1), script::return_of(2)]);
        scenes
            .flat_map(|scene| scene.calls)
            .map(|call| {
                let answer = call.expected();
                (call, answer)
            })
            .collect()
    }

    #[test]
    fn every_change_of_a_status_a_code_or_a_digit_is_a_difference() {
        assert_eq!(compare(&as_expected()), Ok(()));
        for index in 0..as_expected().len() {
            let changes: [fn(&mut ExpectedAnswer); 4] = [
                |answer| answer.status.push('0'),
                |answer| answer.code.push('X'),
                |answer| answer.payload = Some(BTreeMap::new()),
                |answer| {
                    let rounded = |json: &mut Box<str>| *json = json.replace("740993", "740992").into();
                    answer.payload.iter_mut().flat_map(BTreeMap::values_mut).for_each(rounded);
                },
            ];
            for change in changes {
                let mut answers = as_expected();
                let before = format!("{:?}", answers[index].1);
                change(&mut answers[index].1);
                if format!("{:?}", answers[index].1) != before {
                    let difference = compare(&answers).expect_err("it was changed");
                    assert!(difference.starts_with(&format!("call {} differs", index + 1)), "{difference}");
                }
            }
        }
    }

    #[test]
    fn the_script_calls_every_point_and_meets_every_kind_of_answer() {
        let answers = as_expected();
        for point in hookgate::core::point::Point::ALL {
            assert!(answers.iter().any(|(call, _)| call.point == point), "{point}");
        }
        let statuses = ["200", "400", "401", "403", "413", "503", "OK", "UNAVAILABLE"];
        for status in statuses {
            assert!(answers.iter().any(|(_, answer)| answer.status == status), "{status}");
        }
    }
}
