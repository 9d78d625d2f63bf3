//! Tests the guides to writing a plugin: what they show is built, run and registered, and blocks a call.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Output},
};

use hookgate_tests::{python, repository, typescript};

use crate::{
    cli::support::Folder,
    docs::story::{Story, library},
};

fn read(path: &str) -> String {
    fs::read_to_string(repository::root().join(path)).unwrap()
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Replaces `cargo run` and `cargo test` in a small project, using the workspace's built libraries: cargo
/// would build all dependencies again with other features. Cargo still checks that they match the manifest.
pub(crate) fn cargo() -> String {
    let this = std::env::current_exe().unwrap();
    let profile = this.ancestors().nth(2).unwrap();
    let target = profile.parent().unwrap();
    let cargo = env!("CARGO"); // with its full path, because the script below is earlier in the path
    let mut build = Command::new(cargo);
    build.args(["build", "--workspace", "--bin", "hookgate", "--locked", "--quiet", "--message-format=json"]);
    build.arg("--target-dir").arg(target).current_dir(repository::root());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let built = String::from_utf8(succeeds(&mut build).stdout).unwrap();
    let crates = ["hookgate_sdk", "schemars", "serde", "serde_json", "tokio"];
    let libraries = crates.map(|name| (name, library(&built, name)));
    let externs = libraries.each_ref().map(|(name, path)| format!("--extern {name}='{}'", path.display()));
    let dependencies = libraries[0].1.parent().unwrap();
    format!(
        r#"#!/bin/bash
set -eu
build() {{
    local program=$1
    shift
    [ "$program" -nt src/main.rs ] && return
    cp '{root}/Cargo.lock' . && chmod u+w Cargo.lock
    '{cargo}' tree --offline --quiet > tree.txt
    rm -f "$program"
    CARGO_PKG_VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml) \
        rustc --edition 2024 -C debuginfo=0 -L dependency='{dependencies}' {externs} "$@" -o "$program" src/main.rs
}}
case "$1" in
    new) '{cargo}' new --quiet --vcs none "$2" ;;
    run) build program; exec ./program "${{@:3}}" ;;
    test) build tests --test; exec ./tests ;;
esac
"#,
        root = repository::root().display(),
        dependencies = dependencies.display(),
        externs = externs.join(" "),
    )
}

#[tokio::test]
async fn the_guide_in_rust_leads_from_an_empty_project_to_blocked_and_changed_calls() {
    let story = Story::of("writing-a-plugin.md").await;
    let cargo = tokio::task::spawn_blocking(cargo).await.unwrap();
    story.command("cargo", &cargo);
    symlink(repository::root(), story.place().join("hookgate")).unwrap();
    let printed = story.told().await;
    assert!(printed.contains(r#""decision":"block""#) && printed.contains(r#""modified":true"#), "{printed}");
}

#[tokio::test]
async fn the_guide_in_python_leads_from_an_empty_project_to_blocked_and_changed_calls() {
    let story = python_story("writing-a-plugin-python.md", "no-shell").await;
    let printed = story.told().await;
    assert!(printed.contains(r#""decision":"block""#) && printed.contains(r#""modified":true"#), "{printed}");
}

#[tokio::test]
async fn the_guide_in_typescript_leads_from_an_empty_project_to_blocked_and_changed_calls() {
    let story = typescript_story("writing-a-plugin-typescript.md").await;
    let printed = story.told().await;
    assert!(printed.contains(r#""decision":"block""#) && printed.contains(r#""modified":true"#), "{printed}");
}

#[tokio::test]
async fn the_page_for_agents_in_typescript_leads_to_an_allowed_and_a_blocked_call() {
    let story = typescript_story("calling-from-typescript.md").await;
    let printed = story.told().await;
    assert!(printed.contains("run fs.read with") && printed.contains("TOOL_NOT_ALLOWED"), "{printed}");
}

#[tokio::test]
async fn the_page_for_agents_in_python_leads_to_an_allowed_and_a_blocked_call() {
    let story = python_story("calling-from-python.md", "my-agent").await;
    let printed = story.told().await;
    assert!(printed.contains("run fs.read with") && printed.contains("TOOL_NOT_ALLOWED"), "{printed}");
}

#[tokio::test]
async fn the_page_on_the_llm_proxy_leads_an_unchanged_agent_to_redactions_and_blocks() {
    let story = python_story("llm-proxy.md", "my-agent").await;
    let printed = story.told().await;
    for part in
        ["Write to [EMAIL].", "[removed: CONTENT_BLOCKED]", "shell.exec was refused", "model_not_found"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[tokio::test]
async fn the_page_on_javascript_leads_from_a_plugin_of_dexto_to_a_blocked_tool_and_a_quota() {
    tokio::task::spawn_blocking(typescript::runner).await.unwrap();
    let story = typescript_story("javascript-plugins.md").await;
    let printed = story.told().await;
    assert!(printed.contains("TOOL_NOT_ALLOWED") && printed.contains("QUOTA_EXCEEDED"), "{printed}");
}

/// The story of a page that has the SDK for Python in the virtual environment of a project.
async fn python_story(page: &str, project: &str) -> Story {
    let sdk = tokio::task::spawn_blocking(python::sdk).await.unwrap();
    let story = Story::of(page).await;
    let project = story.place().join(project);
    fs::create_dir(&project).unwrap();
    symlink(sdk.join(".venv"), project.join(".venv")).unwrap();
    story
}

/// The story of a page that installs the SDK for TypeScript from the checkout `hookgate`.
async fn typescript_story(page: &str) -> Story {
    tokio::task::spawn_blocking(typescript::sdk).await.unwrap();
    let story = Story::of(page).await;
    symlink(repository::root(), story.place().join("hookgate")).unwrap();
    story
}

#[tokio::test]
async fn the_guide_for_shell_scripts_leads_from_nothing_to_a_tool_blocked_for_one_tenant() {
    let story = Story::of("writing-a-plugin-shell.md").await;
    let printed = story.told().await;
    assert!(printed.contains("2 tests passed") && printed.contains(r#""decision":"block""#), "{printed}");
}

#[tokio::test]
async fn the_page_on_kaged_leads_from_a_plugin_to_a_tool_and_a_note_of_one_tenant() {
    let story = Story::of("kaged-plugins.md").await;
    let printed = story.told().await;
    assert!(printed.contains(r#""result":{"status": "stored"}"#), "{printed}");
    assert!(printed.contains(r#""value":{"content":"Ada likes tea.\n"}"#), "{printed}");
}

#[tokio::test]
async fn the_page_on_librefang_leads_from_a_plugin_to_a_memory_of_one_tenant() {
    let story = Story::of("librefang-plugins.md").await;
    let printed = story.told().await;
    assert!(printed.contains(r#""value":{"content": "Ada likes tea."}"#), "{printed}");
}

#[tokio::test]
async fn the_runners_file_on_the_page_is_one_that_the_runner_takes() {
    let page = read("docs/writing-a-plugin-shell.md");
    let (_, rest) = page.split_once("## The runner's file").expect("the section is there");
    let example = rest.split("```").nth(1).and_then(|block| block.strip_prefix("yaml\n")).expect("a block");
    let folder = Folder::new();
    folder.write("plugin.sh", "");
    folder.write("runner.yaml", &example.replace("/tmp/homes", "homes"));
    let args = ["runner", "stdio", "runner.yaml", "--listen", "unix:///no/such/folder/s"];
    let ran = folder.run_with(&args, &[("API_KEY", "k")], "").await;
    assert!(ran.code == Some(1) && ran.stderr.contains("can't listen"), "{ran:?}");
}

#[tokio::test]
async fn the_guide_for_any_language_leads_from_the_exported_contract_to_a_blocked_call() {
    let page = read("docs/writing-a-plugin-any-language.md");
    let install = page.lines().find(|line| line.starts_with("npm install ")).unwrap();
    let tools = tokio::task::spawn_blocking({
        let install = install.to_owned();
        move || node_modules(&install)
    });
    let tools = tools.await.unwrap();
    let story = Story::of("writing-a-plugin-any-language.md").await;
    fs::create_dir(story.place().join("no-shell")).unwrap();
    symlink(tools, story.place().join("no-shell/node_modules")).unwrap();
    let printed = story.told().await;
    assert!(printed.contains(r#""decision":"block""#), "{printed}");
}

/// The packages that the page installs, in a folder that ./test has filled, or that is filled once here.
fn node_modules(install: &str) -> PathBuf {
    let folder = repository::root().join("target/tools/guide");
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).ok().as_deref() != Some(install) {
        fs::create_dir_all(&folder).unwrap();
        let packages = install.split_whitespace().skip(2);
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"])
            .arg(&folder)
            .args(packages);
        succeeds(&mut npm);
        fs::write(stamp, install).unwrap();
    }
    folder.join("node_modules")
}
