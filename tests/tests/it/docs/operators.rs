//! Checks the pages for operators: they show the real output.

use std::os::unix::fs::symlink;

use hookgate_tests::fake::{Act, FakePlugin};

use crate::{docs::story::Story, edge::support::POINT};

/// With the files of the page.
#[tokio::test]
async fn a_rule_is_observed_then_advised_then_enforced_and_taken_back_as_the_page_says() {
    let printed = Story::of("rolling-out-a-rule.md").await.told().await;
    for stage in [r#"hookgate_mode="observe""#, r#"hookgate_mode="advise""#, "exit code 3", r#""revision":5"#]
    {
        assert!(printed.contains(stage), "{stage}: {printed}");
    }
}

#[tokio::test]
async fn each_symptom_shows_what_the_page_says() {
    let story = Story::of("troubleshooting.md").await;
    let without_verdict = FakePlugin::named("forgetful").at(POINT, Act::no_verdict());
    let forgetful = without_verdict.only(&[POINT]).start_unix().await;
    let socket = forgetful.endpoint().trim_start_matches("unix://").to_owned();
    symlink(socket, story.place().join("forgetful.sock")).unwrap();
    let printed = story.told().await;
    for symptom in ["PLUGIN_UNAVAILABLE", "TOKEN_INVALID", "exit code 4", "did you mean `priority`?"] {
        assert!(printed.contains(symptom), "{symptom}: {printed}");
    }
}

#[tokio::test]
async fn a_registry_is_written_applied_and_taken_back_from_the_command_line_as_the_page_says() {
    let printed = Story::of("registry-cli.md").await.told().await;
    for stage in ["which is active", "read it again", "Nothing to change.", "No difference."] {
        assert!(printed.contains(stage), "{stage}: {printed}");
    }
}

#[tokio::test]
async fn a_registry_is_written_bypassed_and_kept_up_over_http_as_the_page_says() {
    let printed = Story::of("registry.md").await.told().await;
    for stage in [
        "Approved tenant-auth",
        "storage:write (new): writes",
        "\"active\":true",
        "\"drained\":true",
        "TOOL_NOT_ALLOWED",
    ] {
        assert!(printed.contains(stage), "{stage}: {printed}");
    }
}
