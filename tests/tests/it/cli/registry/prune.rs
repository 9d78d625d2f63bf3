//! Tests `hookgate apply --prune`, where a file is the whole of what it selects, and rollbacks to what was
//! shown.

use serde_json::json;

use crate::cli::registry::support::Desk;

const FILE: &str = "tenants:
  - id: nova
    labels: { team: a }
bindings:
  - { name: gold, plugin: content-policy, tenant: nova, priority: 20, mode: observe, labels: { team: a } }
";

async fn filled() -> Desk {
    let desk = Desk::new().await;
    desk.folder.write("registry.yaml", FILE);
    desk.does(&["apply", "-f", "registry.yaml", "--yes"]).await;
    desk.does(&["tenant", "set", "vega", "--label", "team=b"]).await;
    desk
}

#[tokio::test]
async fn a_selector_prunes_what_has_the_labels_of_every_kind_and_leaves_the_rest() {
    let desk = filled().await;
    assert_eq!(desk.json(&["binding", "list", "-l", "team=a"]).await["bindings"][0]["name"], "gold");
    assert_eq!(desk.does(&["binding", "list", "-l", "team=b"]).await, "There are no bindings.\n");
    assert_eq!(desk.does(&["plugin", "list", "--selector", "team=a,of=x"]).await, "There are no plugins.\n");
    desk.folder.write("less.yaml", "tenants:\n  - id: orion\n    labels: { team: a }\n");
    let prune = ["-f", "less.yaml", "--prune", "-l", "team=a"];
    let changes = "- tenant nova\n+ tenant orion\n    labels.team  a\n- binding gold\n\n";
    for args in [&["diff"][..], &["apply", "--dry-run"]] {
        let ran = desk.run(&[args, &prune].concat()).await;
        assert!(ran.stdout.starts_with(changes), "{ran:?}");
    }
    let done = desk.does(&[&["apply", "--yes"][..], &prune].concat()).await;
    assert!(
        done.starts_with(changes) && done.ends_with("Written as revision 4, which is active.\n"),
        "{done}"
    );
    let left = desk.json(&["tenant", "list", "-l", "team=b"]).await;
    assert_eq!(left["tenants"][0]["id"], "vega");
    assert_eq!(desk.does(&[&["apply", "--yes"][..], &prune].concat()).await, "Nothing to change.\n");
}

#[tokio::test]
async fn what_would_not_be_pruned_the_next_time_is_refused_with_its_line_and_so_is_half_a_wish() {
    let desk = filled().await;
    desk.folder.write("odd.yaml", "tenants:\n  - id: orion\n    labels: { team: a }\n  - id: lyra\n");
    let odd = "odd.yaml:4:5: /tenants/list/1/labels: The tenant lacks the label `team=a`";
    desk.fails(&["apply", "-f", "odd.yaml", "--prune", "-l", "team=a", "--yes"], 2, odd).await;
    let file = ["apply", "-f", "registry.yaml", "--yes"];
    for (args, said) in [
        (&["--prune"][..], "--selector"),
        (&["-l", "team=a"], "--prune"),
        (&["--all"], "--prune"),
        (&["--prune", "--all", "-l", "team=a"], "cannot be used with"),
        (&["--prune", "-l", "team!=a"], "a label selector must be KEY=VALUE"),
        (&["--prune", "-l", "team"], "a label must be KEY=VALUE"),
        (&["--prune", "-l", "team=a,team=b"], "--selector gives `team` two values"),
    ] {
        desk.fails(&[&file[..], args].concat(), 2, said).await;
    }
    assert_eq!(desk.head().await, 3);
}

#[tokio::test]
async fn a_misspelt_list_prunes_nothing() {
    let desk = filled().await;
    desk.folder.write("misspelt.yaml", &FILE.replace("bindings:", "binding:"));
    let said = "/binding: `binding` is not a key here";
    for args in [
        &["apply", "-f", "misspelt.yaml", "--yes"][..],
        &["apply", "-f", "misspelt.yaml", "--prune", "-l", "team=a", "--yes"],
        &["apply", "-f", "misspelt.yaml", "--prune", "--all", "--yes"],
        &["diff", "-f", "misspelt.yaml", "--prune", "-l", "team=a"],
    ] {
        desk.fails(args, 2, said).await;
        desk.fails(args, 2, "did you mean `bindings`?").await;
    }
    assert_eq!(desk.head().await, 3);
}

#[tokio::test]
async fn what_others_need_of_what_would_be_pruned_is_said_with_what_to_do() {
    let desk = filled().await;
    desk.folder.write(
        "theirs.yaml",
        "plugins:
  - { name: guard, builtin: content-policy, labels: { team: a } }
bindings:
  - { name: other, plugin: guard, tenant: vega, priority: 30 }
  - { name: o2, plugin: content-policy, tenant: nova, priority: 31 }
",
    );
    desk.does(&["apply", "-f", "theirs.yaml", "--yes"]).await;
    let of_plugin =
        "bindings use plugin `guard`: `other`; delete them first, or give --force to delete them too";
    let of_tenant = "binding `o2` in the registry: /tenant: tenant `nova` would be pruned, because it has the label \
                     `team=a` and isn't listed here, but binding `o2` names it: keep the tenant, or also \
                     remove or change the binding";
    desk.folder.write("none.yaml", "tenants: []\n");
    let args = |command: &'static str, more: &[&'static str]| {
        [&[command, "-f", "none.yaml", "--prune", "-l", "team=a"], more].concat()
    };
    desk.fails(&args("apply", &["--yes"]), 1, of_plugin).await;
    desk.fails(&args("diff", &[]), 2, of_plugin).await;
    desk.fails(&args("apply", &["--yes", "--force"]), 2, of_tenant).await;
    desk.fails(&args("diff", &["--force"]), 2, of_tenant).await;
    let one_by_one = "tenant `nova` would be removed, but binding `gold` names it";
    desk.does(&["binding", "remove", "o2"]).await;
    desk.fails(&["tenant", "remove", "nova"], 2, one_by_one).await;
    let done = desk.does(&args("apply", &["--yes", "--force"])).await;
    assert!(done.starts_with("- plugin guard\n- tenant nova\n- binding gold\n- binding other\n"), "{done}");
    desk.fails(&["apply", "-f", "none.yaml", "--force"], 2, "--prune").await;
}

/// An object that got the labels meanwhile must not be pruned unseen.
#[tokio::test]
async fn what_was_written_since_it_was_shown_is_not_pruned() {
    let desk = filled().await;
    desk.folder.write("none.yaml", "tenants: []\n");
    let mut terminal = desk.terminal("hookgate apply -f none.yaml --prune -l team=a").await;
    terminal.shows("Write this? [y/N] ").await;
    desk.does(&["tenant", "set", "lyra", "--label", "team=a", "--reason", "theirs"]).await;
    terminal.types("y\n").await;
    let said = terminal.shows("run it again").await;
    assert!(said.contains("the registry is at revision 4, and 3 is expected"), "{said}");
    assert!(said.contains("revision 4 by unix:") && said.contains(": theirs"), "{said}");
    assert_eq!(
        desk.json(&["tenant", "list", "-l", "team=a"]).await["tenants"].as_array().map(Vec::len),
        Some(2)
    );
}

#[tokio::test]
async fn a_rollback_expects_the_revision_that_was_shown() {
    let desk = filled().await;
    let said = "the registry is at revision 3, and 2 is expected; read it again: hookgate revision list";
    desk.fails(&["revision", "rollback", "1", "--yes", "--expected-revision", "2"], 1, said).await;
    let mut terminal = desk.terminal("hookgate revision rollback 1").await;
    terminal.shows("Roll back to revision 1? [y/N] ").await;
    desk.does(&["tenant", "set", "lyra"]).await;
    terminal.types("y\n").await;
    terminal.shows("the registry is at revision 4, and 3 is expected").await;
    assert_eq!(desk.head().await, 4);
    let back = ["revision", "rollback", "1", "--yes", "--expected-revision", "4"];
    assert!(desk.does(&back).await.ends_with("Written as revision 5, which is active.\n"));
    let left = desk.json(&["tenant", "list"]).await;
    assert_eq!(
        (left["tenants"].as_array().map(Vec::len), &left["tenants"][0]["id"]),
        (Some(1), &json!("acme"))
    );
}
