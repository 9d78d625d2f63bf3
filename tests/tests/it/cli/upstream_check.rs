//! Tests `hookgate upstream check` with a running gateway: a line for each upstream, warnings, and exit codes.

use hookgate_tests::gateway::Gateway;
use serde_json::json;

use crate::{
    admin::{
        registry::support::administrator,
        upstream_check::{CheckedProviders, KEY},
    },
    cli::support::{CommandOutput, Folder},
};

async fn check(gateway: &Gateway, args: &[&str]) -> CommandOutput {
    let address = format!("http://{}", gateway.admin_addr().expect("the admin port is open"));
    let args = [&["upstream", "check"], args, &["--addr", &address]].concat();
    let ran = Folder::new().run_with(&args, &[("HOOKGATE_TOKEN", &administrator())], "").await;
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "{ran:?}");
    ran
}

/// The words of a line, without the time.
fn words(line: &str) -> Vec<&str> {
    let words: Vec<_> = line.split_whitespace().collect();
    let time = words.iter().position(|word| *word == "ms").expect("a time");
    [&words[..time - 1], &words[time + 1..]].concat()
}

#[tokio::test]
async fn upstreams_that_can_not_be_used_are_lines_and_an_exit_code() {
    let providers = CheckedProviders::start().await;
    let gateway = providers.setup.start().await;
    let all = check(&gateway, &[]).await;
    assert_eq!(
        (all.code, &*all.stderr),
        (Some(1), "hookgate: 4 of 7 upstreams failed the check\n"),
        "{all:?}"
    );
    let lines: Vec<_> = all.stdout.lines().collect();
    assert_eq!(lines.len(), 10, "{all:?}");
    let titles: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(titles, ["UPSTREAM", "RESULT", "TIME", "MODELS", "WHY", "NOT"]);
    assert_eq!(words(lines[1]), ["fine", "ok", "2"]);
    assert_eq!(words(lines[3])[..4], ["wrong-key", "credential", "refused", "-"]);
    assert!(lines[3].ends_with("with the status 401: check `credential`"), "{all:?}");
    assert_eq!(words(lines[7]), ["demo", "ok", "-"]);
    assert_eq!(
        lines[8..],
        [
            "warning: rule `fast@fine` asks for model `gpt-5-nanno`, which `fine` doesn't list",
            "warning: rule `claude-x-5@claude` asks for model `claude-x-5`, which `claude` doesn't list",
        ]
    );

    let fine = check(&gateway, &["fine", "demo", "--reason", "new key"]).await;
    assert_eq!((fine.code, &*fine.stderr), (Some(0), ""), "a warning is no failure: {fine:?}");
    assert!(fine.stdout.contains("warning: ") && !fine.stdout.contains("claude"), "{fine:?}");
    let data = check(&gateway, &["fine", "html", "--output", "json"]).await;
    assert_eq!(data.code, Some(1), "{data:?}");
    let results = ["fine", "html"].map(|name| {
        data.json()["upstreams"].as_array().unwrap().iter()
        .find(|check| check["name"] == name).unwrap()["result"].clone()
    });
    assert_eq!(results, [json!("ok"), json!("no_model_list")]);
    let unknown = check(&gateway, &["fine", "nobody"]).await;
    let expected = "hookgate: there is no active upstream `nobody` in this process\n";
    assert_eq!((unknown.code, &*unknown.stderr), (Some(1), expected), "{unknown:?}");
}

#[tokio::test]
async fn a_gateway_without_upstreams_says_so() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let none = check(&gateway, &[]).await;
    assert_eq!((none.code, &*none.stdout), (Some(0), "There are no upstreams.\n"), "{none:?}");
}
