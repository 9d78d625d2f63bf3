//! Tests `hookgate apply` and `hookgate diff`: a file is applied in one revision or not at all, and only if
//! the registry is as shown.

use serde_json::{Value, json};

use crate::{cli::registry::support::Desk, registry::support::call};

const FILE: &str = r#"server: { ops_addr: 127.0.0.1:9090 }
tenants:
  - id: nova
    labels: { plan: "${PLAN:-gold}" }
  - id: vega
bindings:
  - { name: gold, plugin: content-policy, selector: { plan: gold }, priority: 20, mode: observe }
"#;
const UNAPPLIED: &str = "hookgate: `server` is ignored: the registry holds only plugins, tenants, bindings, upstreams and models\n";

#[tokio::test]
async fn a_file_is_shown_then_applied_as_one_revision_and_the_second_time_changes_nothing() {
    let desk = Desk::new().await;
    desk.folder.write("registry.yaml", FILE);
    let (diff, apply) = (["diff", "-f", "registry.yaml"], ["apply", "-f", "registry.yaml"]);
    let differs = desk.run(&diff).await;
    assert_eq!((differs.code, differs.stderr.as_str()), (Some(1), UNAPPLIED), "{differs:?}");
    let changes =
        "+ tenant nova\n    labels.plan  gold\n+ tenant vega\n+ binding gold\n    mode           observe\n";
    assert!(differs.stdout.starts_with(changes), "{differs:?}");
    assert!(differs.stdout.contains("nova    calls               unknown -> served\n"), "{differs:?}");
    desk.fails(&apply, 2, "nothing was written: there is no terminal to ask on").await;
    let tried = desk.run(&[&apply[..], &["--dry-run"]].concat()).await;
    assert!(tried.code == Some(0) && tried.stdout.ends_with("Dry run: nothing was written.\n"), "{tried:?}");
    assert_eq!(desk.head().await, 1);

    let done = desk.run(&[&apply[..], &["--yes", "--reason", "release 7"]].concat()).await;
    assert!(done.code == Some(0) && done.stdout.starts_with(changes), "{done:?}");
    assert!(done.stdout.ends_with("\nWritten as revision 2, which is active.\n"), "{done:?}");
    assert_eq!(call(&desk.gateway, "vega").await.status, 200);
    let revision = desk.json(&["revision", "show", "2"]).await;
    assert_eq!(
        (&revision["reason"], revision["changes"].as_array().map(Vec::len)),
        (&json!("release 7"), Some(3))
    );

    for args in [&apply[..], &diff[..]] {
        let again = desk.run(args).await;
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), "Nothing to change.\n"), "{again:?}");
    }
    assert_eq!(desk.head().await, 2);
}

#[tokio::test]
async fn one_mistake_leaves_everything_as_it_was_and_is_shown_with_its_line() {
    let desk = Desk::new().await;
    // Locally, before any request.
    desk.folder
        .write("registry.yaml", &FILE.replace("id: vega", "id: vega\n    colour: red").replace("20", "low"));
    let ran = desk.run(&["apply", "-f", "registry.yaml", "--yes"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    for said in [
        "registry.yaml:6:5: /tenants/list/1/colour: ",
        "\nregistry.yaml:8:",
        "/bindings/0/priority: ",
        "\n2 problems",
    ] {
        assert!(ran.stderr.contains(said), "no {said} in {ran:?}");
    }
    // As a whole, which only the gateway can: the file's own binding has priority 10.
    desk.folder.write("registry.yaml", &FILE.replace("20", "10"));
    for args in [&["apply", "-f", "registry.yaml", "--yes"][..], &["diff", "-f", "registry.yaml"]] {
        let ran = desk.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(
            ran.stderr.contains("registry.yaml:7:") && ran.stderr.contains("/bindings/0/priority: "),
            "{ran:?}"
        );
    }
    desk.folder.write("registry.yaml", &FILE.replace("id: vega", "id: acme"));
    let owned = "registry.yaml:5:5: /tenants/list/1: the gateway's configuration file owns tenant `acme`";
    desk.fails(&["apply", "-f", "registry.yaml", "--yes"], 2, owned).await;
    for (text, said) in [
        ("tenants: [{ id: a }, { id: a }]", "registry.yaml:1:"),
        ("", "registry.yaml: the file is empty\n"),
        ("tenants: [", "registry.yaml:1:"),
        ("server: {}", "lists no plugins, tenants, bindings, upstreams or models"),
    ] {
        desk.folder.write("registry.yaml", text);
        desk.fails(&["apply", "-f", "registry.yaml", "--yes"], 2, said).await;
        desk.fails(&["diff", "-f", "registry.yaml"], 2, said).await;
    }
    desk.folder.write("registry.yaml", FILE);
    let long = desk.run(&["apply", "-f", "registry.yaml", "--yes", "--reason", &"x".repeat(501)]).await;
    let said = "hookgate: PAYLOAD_INVALID (the caller failed): --reason must be at most 500 bytes";
    assert_eq!((long.code, long.stderr.contains(said)), (Some(2), true), "{long:?}");
    desk.fails(&["diff", "-f", "missing.yaml"], 2, "missing.yaml can't be read: No such file").await;
    assert_eq!(desk.head().await, 1);
}

#[tokio::test]
async fn prune_takes_away_what_the_api_owns_and_the_file_does_not_name_of_the_kinds_it_lists() {
    let desk = Desk::new().await;
    desk.folder.write("registry.yaml", FILE);
    assert_eq!(desk.run(&["apply", "-f", "registry.yaml", "--yes"]).await.code, Some(0));
    desk.folder.write("less.yaml", "tenants:\n  - id: vega\n");
    assert_eq!(desk.does(&["diff", "-f", "less.yaml"]).await, "Nothing to change.\n");
    let pruned = desk.run(&["diff", "-f", "less.yaml", "--prune", "--all"]).await;
    assert!(pruned.code == Some(1) && pruned.stdout.starts_with("- tenant nova\n\n"), "{pruned:?}");
    desk.folder.write("none.yaml", "tenants: { list: [] }\nbindings: []\n");
    let done = desk.does(&["apply", "-f", "none.yaml", "--prune", "--all", "--yes"]).await;
    assert!(done.starts_with("- tenant nova\n- tenant vega\n- binding gold\n"), "{done}");
    let left = desk.json(&["tenant", "list"]).await;
    assert_eq!(
        (left["tenants"].as_array().map(Vec::len), &left["tenants"][0]["id"]),
        (Some(1), &json!("acme"))
    );
    assert_eq!(desk.json(&["binding", "list"]).await["bindings"][0]["owner"], "file");
}

/// Another write between showing and writing; here, while a person thinks at the terminal.
#[tokio::test]
async fn a_concurrent_write_is_named_and_not_overwritten() {
    let desk = Desk::new().await;
    desk.folder.write("registry.yaml", "tenants:\n  - id: nova\n    labels: { plan: gold }\n");
    desk.does(&["tenant", "set", "nova"]).await;
    let mut terminal = desk.terminal("hookgate apply -f registry.yaml --reason mine").await;
    terminal.shows("Write this? [y/N] ").await;
    desk.does(&["tenant", "set", "nova", "--label", "plan=tin", "--reason", "theirs"]).await;
    terminal.types("y\n").await;
    let said = terminal.shows("run it again").await;
    assert!(said.contains("the version of tenant `nova` is 3, and 2 is expected"), "{said}");
    assert!(said.contains("revision 3 by unix:") && said.contains(": theirs"), "{said}");
    let shown = desk.json(&["tenant", "show", "nova"]).await;
    assert_eq!(shown["spec"]["labels"]["plan"], "tin");

    let mut terminal = desk.terminal("hookgate apply -f registry.yaml").await;
    terminal.shows("Write this? [y/N] ").await;
    terminal.types("\n").await;
    terminal.shows("hookgate: nothing was written").await;
    let mut terminal = desk.terminal("hookgate apply -f registry.yaml").await;
    terminal.shows("Write this? [y/N] ").await;
    terminal.types("y\n").await;
    terminal.shows("Written as revision 4, which is active.").await;
    let shown: Value = desk.json(&["tenant", "show", "nova"]).await;
    assert_eq!(shown["spec"]["labels"]["plan"], "gold");
}
