//! Tests `hookgate import dexto`: what it writes decides calls as Dexto did, what it can't carry over is told, and
//! mistakes write nothing.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    gateway::binary,
    repository, typescript,
};
use serde_json::{Value, json};

use crate::cli::{
    help::golden,
    support::{CommandOutput, Folder, Serving, pasted},
};

/// Everything that an agent's file can say, and mistakes that Dexto ignores.
const FULL_AGENT: &str = include_str!("golden/import_dexto/agent.yml");

/// An agent whose plugins block, advise and redact.
const AGENT: &str = r#"
systemPrompt: You are helpful.
plugins:
  contentPolicy:
    priority: -5
    redactEmails: true
  responseSanitizer:
    priority: 900
    redactEmails: true
  custom:
    - name: plans
      module: "${{dexto.agent_dir}}/plugins/plans.mjs"
      blocking: true
      priority: 10
      config: { refused: [bash], key: $PLANS_KEY, dir: "${{dexto.agent_dir}}", price: $5 }
    - name: adviser
      module: "${{dexto.agent_dir}}/plugins/adviser.mjs"
      blocking: false
      priority: 20
    - name: broken
      module: "${{dexto.agent_dir}}/plugins/broken.mjs"
      enabled: false
      blocking: true
      priority: 20
"#;

const PLANS: &str = r#"
export default class Plans {
  async initialize(config) {
    this.config = config;
  }

  async beforeToolCall(payload, context) {
    const { refused, key, dir, price } = this.config;
    const db = context.agent.storage.database;
    const calls = ((await db.get("calls")) ?? 0) + 1;
    await db.set("calls", calls);
    if (!refused.includes(payload.toolName)) return { ok: true };
    const message = `${payload.toolName} is refused: ${key}, ${dir}, ${price}, ${calls}`;
    return { ok: false, cancel: true, message, notices: [{ kind: "block", code: "TOOL_NOT_ALLOWED", message: "plan" }] };
  }
}
"#;

const ADVISER: &str = r#"
export default class Adviser {
  async beforeToolCall() {
    return { ok: false, cancel: true, message: "I would not." };
  }
}
"#;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// A folder with an agent's file.
fn with_agent(text: &str) -> Folder {
    let folder = Folder::new();
    folder.write("agent.yml", text);
    folder
}

/// The agent above, with its modules.
fn with_modules() -> Folder {
    let folder = with_agent(AGENT);
    fs::create_dir(folder.0.path().join("plugins")).unwrap();
    folder.write("plugins/plans.mjs", PLANS);
    folder.write("plugins/adviser.mjs", ADVISER);
    folder
}

/// The printed commands, for a shell in this folder.
fn commands(ran: &CommandOutput) -> Vec<String> {
    let lines = ran.stdout.lines().skip_while(|line| !line.starts_with("Next, "));
    lines.filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn imported_plugins_block_advise_and_redact_as_in_dexto() {
    let package = tokio::task::spawn_blocking(typescript::runner).await.unwrap();
    let folder = with_modules();
    let place = folder.0.path().canonicalize().unwrap();
    let grants = ["--grant", "storage:read", "--grant", "storage:write", "--grant", "log"];
    let ran = folder.run(&[["import", "dexto", "agent.yml"].as_slice(), &grants].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("Set these variables for the gateway: PLANS_KEY\n"), "{ran:?}");
    let commands = commands(&ran);
    let [start, check, serve, call] = commands.as_slice() else { panic!("four commands: {ran:?}") };

    let env = [("PLANS_KEY", "k-42")];
    let program = format!("node {}", package.join("dist/main.js").display());
    let start = start.replace("node_modules/.bin/hookgate-runner", &program);
    let mut runner = Serving::pasted(&place, &start, &[]).await;
    runner.logged("plugin listens").await;
    let mut checked = folder.run_with(&check.split(' ').skip(1).collect::<Vec<_>>(), &env, "").await;
    assert!(checked.code == Some(0), "{checked:?}");
    checked = folder.run(&["config", "check", "gateway/hookgate.yaml"]).await;
    assert!(checked.code == Some(2) && checked.stderr.contains("PLANS_KEY is not set"), "{checked:?}");

    let mut gateway = Serving::pasted(&place, serve, &env).await;
    let listening = gateway.logged("listening").await;
    gateway.logged("started").await;
    let mint = format!(
        "cd '{}' && {}",
        place.display(),
        call.split_once("$(").unwrap().1.split_once(')').unwrap().0
    );
    let token = pasted(&format!("export PLANS_KEY=k-42; {mint}")).await.stdout;
    let agent =
        HttpAgent::new(listening["data_addr"].as_str().unwrap().parse().unwrap()).with_token(token.trim());
    decides_as_dexto(&agent, &place).await;
    assert_eq!(gateway.stop().await.code, Some(0));
    runner.stop().await;
}

async fn decides_as_dexto(agent: &HttpAgent, place: &Path) {
    let tool =
        |name: &str| agent.call(ExtensionPoint::BeforeToolCall, json!({ "tool_name": name, "args": {} }));
    let blocked = tool("bash").await;
    assert_eq!((blocked.status, &blocked.body["code"]), (403, &json!("TOOL_NOT_ALLOWED")), "{blocked:?}");
    let said = format!("bash is refused: k-42, {}, $5, 1", place.display());
    assert_eq!(blocked.body["detail"], said.as_str(), "{blocked:?}");

    let advised = tool("fs.read").await;
    assert_eq!((advised.status, &advised.body["decision"]), (200, &json!("continue")), "{advised:?}");
    let steps = advised.body["steps"].as_array().unwrap();
    let outcomes: Vec<_> = steps.iter().map(|step| [&step["plugin"], &step["outcome"]]).collect();
    assert_eq!(
        outcomes,
        [[&json!("plans"), &json!("continued")], [&json!("adviser"), &json!("would_block")]]
    );

    let asked = agent.call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "Mail ada@example.com" })).await;
    let answered = agent
        .call(
            ExtensionPoint::BeforeResponse,
            json!({ "content": "It is ada@example.com", "provider": "p", "model": "m" }),
        )
        .await;
    let text = |answer: &HttpAnswer, field: &str| {
        answer.body["payload"][field].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(text(&asked, "text"), "Mail [EMAIL]", "{asked:?}");
    assert_eq!(text(&answered, "content"), "It is [EMAIL]", "{answered:?}");
}

/// Dexto doesn't start without its plugins.
#[tokio::test]
async fn a_gateway_does_not_start_without_the_runner() {
    let folder = with_modules();
    assert_eq!(folder.run(&["import", "dexto", "agent.yml"]).await.code, Some(0));
    let env = [("PLANS_KEY", "k-42"), ("HOOKGATE__STARTUP__WAIT", "100ms")];
    let args = ["serve", "--config", "gateway/hookgate.yaml"];
    let ran = folder
        .run_with(
            &args,
            &[
                &env[..],
                &[
                    ("HOOKGATE__SERVER__DATA_ADDR", "127.0.0.1:0"),
                    ("HOOKGATE__SERVER__OPS_ADDR", "127.0.0.1:0"),
                ],
            ]
            .concat(),
            "",
        )
        .await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("plans") && ran.stderr.contains("adviser"), "{ran:?}");
}

#[tokio::test]
async fn the_written_files_and_the_report_are_those_in_git() {
    let folder = with_agent(FULL_AGENT);
    let ran = folder.run(&["import", "dexto", "agent.yml"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let place = folder.0.path().canonicalize().unwrap().display().to_string();
    let plain =
        |text: &str| text.replace(&place, "/agents").replace(&binary().display().to_string(), "hookgate");
    let written = folder.0.path().join("gateway");
    for (name, text) in [
        ("report.txt", ran.stdout.clone()),
        ("hookgate.yaml", read(written.join("hookgate.yaml"))),
        ("runner.yaml", read(written.join("runner.yaml"))),
    ] {
        golden(&repository::root().join("tests/tests/it/cli/golden/import_dexto").join(name), &plain(&text));
    }
    for (secret, shown) in [("hunter2", &ran.stdout), (&read(written.join("dev.key")), &ran.stdout)] {
        assert!(!shown.contains(secret), "a secret is shown");
    }
    for name in ["hookgate.yaml", "dev.key"] {
        assert_eq!(fs::metadata(written.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let check =
        folder.run_with(&["config", "check", "gateway/hookgate.yaml"], &[("AUDIT_KEY", "x")], "").await;
    assert!(check.code == Some(0) && check.stdout.contains("5 plugins, 5 bindings"), "{check:?}");
}

#[tokio::test]
async fn programs_get_the_same_report_as_an_object() {
    let folder = with_agent(FULL_AGENT);
    let ran = folder
        .run(&[
            "import",
            "dexto",
            "agent.yml",
            "--out-dir",
            "new/one",
            "--tenant",
            "acme",
            "--output",
            "json",
        ])
        .await;
    let report = ran.json();
    assert_eq!(report["files"].as_array().unwrap().last(), Some(&json!("new/one/hookgate.yaml")), "{report}");
    assert_eq!(report["variables"], json!(["AUDIT_KEY"]));
    let typo = "/plugins/contentPolicy/redactEmail";
    let finding =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["pointer"] == typo).unwrap();
    assert_eq!((&finding["kind"], &finding["line"]), (&json!("not_carried_over"), &json!(15)), "{finding}");
    assert!(!ran.stdout.contains("hunter2"));
    let written: Value =
        serde_saphyr::from_str(&read(folder.0.path().join("new/one/hookgate.yaml"))).unwrap();
    assert_eq!(written["tenants"], json!({ "list": [{ "id": "acme" }] }));
    let bindings = written["bindings"].as_array().unwrap();
    assert!(bindings.iter().all(|binding| binding["tenant"] == "acme" && binding["blocking"].is_boolean()));
}

/// Built-in plugins alone need no runner.
#[tokio::test]
async fn without_modules_no_file_for_the_runner_is_written() {
    let folder = with_agent("plugins: { responseSanitizer: { priority: 1, blocking: true } }");
    let ran = folder.run(&["import", "dexto", "agent.yml", "--grant", "log"]).await;
    assert!(ran.code == Some(0) && !ran.stdout.contains("runner.yaml"), "{ran:?}");
    let written: Value =
        serde_saphyr::from_str(&read(folder.0.path().join("gateway/hookgate.yaml"))).unwrap();
    assert_eq!(written["bindings"][0]["blocking"], true);
    assert!(written.get("server").is_none() && !folder.0.path().join("gateway/runner.yaml").exists());
    assert_eq!(folder.run(&["config", "check", "gateway/hookgate.yaml"]).await.code, Some(0));
}

/// Agents' files, and what the refusal says.
const MISTAKES: &[(&str, &[&str])] = &[
    ("plugins: [", &["agent.yml:1:"]),
    ("", &["agent.yml: the file is empty"]),
    ("- a", &["agent.yml"]),
    ("llm: {}", &["agent.yml:1:1: `plugins` is missing", "`contentPolicy`"]),
    (
        "plugin: {}",
        &["agent.yml:1:1: /plugin: `plugin` is not a section of Dexto", "did you mean `plugins`?"],
    ),
    ("plugins: {}", &["/plugins: `plugins` has no plugin"]),
    ("plugins: []", &["/plugins: `plugins` must be a mapping, not a list"]),
    ("plugins:\n", &["/plugins: `plugins` must be a mapping, not empty"]),
    (
        "plugins: { contentPolice: { priority: 1 } }",
        &["/plugins/contentPolice", "did you mean `contentPolicy`?"],
    ),
    ("plugins: { contentPolicy: { blocking: true } }", &["`priority` is missing here"]),
    (
        "plugins: { contentPolicy: { priority: 1, maxInputChars: -1 } }",
        &["`maxInputChars` must be a whole number"],
    ),
    ("plugins: { contentPolicy: { priority: 1, enabled: \"no\" } }", &["`enabled` must be"]),
    ("plugins: { responseSanitizer: { priority: 1.5 } }", &["`priority` must be a whole number"]),
    ("plugins: { responseSanitizer: { priority: 1, blocking: } }", &["`blocking` must be", "not empty"]),
    (
        "plugins: { custom: [{ name: a, module: /a.js, priority: 1 }] }",
        &["/plugins/custom/0: `blocking` is missing here"],
    ),
    (
        "plugins: { custom: [{ name: a, module: /a.js, priority: 1, blockin: true }] }",
        &["/plugins/custom/0/blockin: `blockin` is not a key here", "did you mean `blocking`?"],
    ),
    (
        "plugins: { custom: [{ name: my plugin, module: ./p/a.ts, priority: 1, blocking: true, config: { a: \"${{ dexto.project_dir }}\" } }] }",
        &[
            "/plugins/custom/0/name: `name` must be a letter",
            "/module: `module` must be an absolute path",
            "= write `${{dexto.agent_dir}}/p/a.ts`",
            "/config/a: `${{dexto.project_dir}}` is known to Dexto only",
            "3 problems",
        ],
    ),
    (
        "plugins:\n  contentPolicy: { priority: 1 }\n  custom:\n    - { name: a, module: /a.js, priority: 1, blocking: false }\n",
        &["agent.yml:4:", "/plugins/custom/0/priority: `priority` 1 is also that of `content-policy`"],
    ),
    (
        "plugins:\n  contentPolicy: { priority: 1, enabled: false }\n  custom:\n    - { name: content-policy, module: /a.js, priority: 1, blocking: false }\n",
        &["/plugins/custom/0/name: another plugin is called `content-policy`"],
    ),
    (
        "plugins: { registry: [{ type: guard, priority: 1, blocking: true }] }",
        &["/plugins/registry/0: the blocking plugin `guard` is registered", "`--skip guard`"],
    ),
    (
        "plugins: { contentPolicy: { priority: 1 } }\nhooks: [{ type: guard }, { type: log, enabled: false }]\n",
        &[
            "agent.yml:2:",
            "/hooks: `hooks` name code of the application; there is no module to run",
            "`--skip hooks`",
        ],
    ),
    (
        "plugins: { custom: [{ name: a, module: /opt/$STAGE/x.mjs, priority: 1, blocking: true }, \
         { name: b, module: $HOME/x.mjs, priority: 2, blocking: true }, \
         { name: c, module: \"${{dexto.agent_dir}}/${X}.mjs\", priority: 3, blocking: true }] }",
        &[
            "/plugins/custom/0/module: `module` has a variable",
            "/plugins/custom/1/module: `module` has a variable",
            "/plugins/custom/2/module: `module` has a variable",
            "= write the path itself",
            "3 problems",
        ],
    ),
];

#[tokio::test]
async fn a_mistake_is_told_with_its_place_and_nothing_is_written() {
    for (text, said) in MISTAKES {
        let folder = with_agent(text);
        let ran = folder.run(&["import", "dexto", "agent.yml"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{text}: {ran:?}");
        for part in *said {
            assert!(ran.stderr.contains(part), "{text}: {part}: {}", ran.stderr);
        }
        assert!(!folder.0.path().join("gateway").exists(), "{text}");
    }
}

#[tokio::test]
async fn a_mistake_does_not_show_a_value_of_a_plugins_config() {
    let text = "plugins: { custom: [{ name: a, module: ./a.js, priority: 1, blocking: 1, config: { key: hunter2 } }] }";
    let ran = with_agent(text).run(&["import", "dexto", "agent.yml"]).await;
    assert!(
        ran.code == Some(2) && ran.stderr.contains("./a.js") && !ran.stderr.contains("hunter2"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_plugin_is_left_out_only_by_its_name() {
    let text = "plugins:\n  contentPolicy: { priority: 1 }\n  registry: [{ type: guard, priority: 2, blocking: true }]\n";
    let folder = with_agent(text);
    let ran = folder.run(&["import", "dexto", "agent.yml", "--skip", "guard"]).await;
    let said =
        "agent.yml:3: /plugins/registry/0: `--skip guard` leaves this plugin out: its rules no longer apply";
    assert!(ran.code == Some(0) && ran.stdout.contains(said), "{ran:?}");
    let ran = folder.run(&["import", "dexto", "agent.yml", "--skip", "gard", "--out-dir", "b"]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(2), "hookgate: --skip gard: the file has no such plugin\n")
    );
    let all =
        ["import", "dexto", "agent.yml", "--skip", "guard", "--skip", "contentPolicy", "--out-dir", "b"];
    let ran = folder.run(&all).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("no plugin is left to import"), "{ran:?}");
}

#[tokio::test]
async fn hooks_are_left_out_only_by_name_or_if_disabled() {
    for (hooks, args, said) in [
        (
            "[{ type: guard }]",
            ["--skip", "hooks"].as_slice(),
            "leaves the hooks out: their rules no longer apply",
        ),
        ("[{ type: guard, enabled: false }]", &[], "there is no module to run; none is enabled"),
    ] {
        let folder =
            with_agent(&format!("plugins: {{ contentPolicy: {{ priority: 1 }} }}\nhooks: {hooks}\n"));
        let ran = folder.run(&[["import", "dexto", "agent.yml"].as_slice(), args].concat()).await;
        assert!(ran.code == Some(0) && ran.stdout.contains(said), "{hooks}: {ran:?}");
        assert!(ran.stdout.contains("agent.yml:2: /hooks: "), "{hooks}: {ran:?}");
    }
}

/// As Dexto, which doesn't follow the link either.
#[tokio::test]
async fn the_agents_folder_is_that_of_the_path_also_for_a_link() {
    let folder = Folder::new();
    fs::create_dir(folder.0.path().join("shared")).unwrap();
    folder.write("shared/agent.yml", AGENT);
    symlink("shared/agent.yml", folder.0.path().join("link.yml")).unwrap();
    let ran = folder.run(&["import", "dexto", "link.yml"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let written = read(folder.0.path().join("gateway/runner.yaml"));
    let place = folder.0.path().canonicalize().unwrap();
    assert!(written.contains(&format!("agent_dir: {}\n", place.display())), "{written}");
}

#[tokio::test]
async fn a_file_that_exists_is_never_overwritten() {
    for name in [".gitignore", "dev.key", "runner.yaml", "hookgate.yaml"] {
        let folder = with_agent(AGENT);
        fs::create_dir(folder.0.path().join("gateway")).unwrap();
        folder.write(&format!("gateway/{name}"), "mine");
        let ran = folder.run(&["import", "dexto", "agent.yml"]).await;
        let said = format!(
            "hookgate: nothing was written, because gateway/{name} already exists: give another folder"
        );
        assert!(ran.code == Some(1) && ran.stderr.starts_with(&said), "{ran:?}");
        assert_eq!(fs::read_dir(folder.0.path().join("gateway")).unwrap().count(), 1);
        assert_eq!(read(folder.0.path().join("gateway").join(name)), "mine");
    }
}

#[tokio::test]
async fn options_that_will_not_do_are_refused_in_a_sentence() {
    let folder = with_agent(AGENT);
    let long = "x".repeat(100);
    for (args, code, said) in [
        (["--listen", "https://a:1"], 2, "write `unix:///path` or `http://host:port`"),
        (["--listen", "unix://a.sock"], 2, "must be absolute"),
        (["--listen", "http://$A:1"], 2, "no `$`"),
        (["--grant", "emit"], 2, "`storage:read`, `storage:write` and `log`"),
        (["--out-dir", &long], 2, "give a shorter path with --out-dir"),
        (["--out-dir", "a?b"], 1, "can't be written in a configuration"),
        (["--listen", "http://"], 2, "'--listen <ADDRESS>': the gateway can't call this address"),
        (["--listen", "http://a"], 2, "'--listen <ADDRESS>': the gateway can't call this address"),
        (["--tenant", "*"], 2, "'--tenant <ID>': `*` is not a tenant id"),
        (["--tenant", "${file:/etc/hostname}"], 2, "'--tenant <ID>': a tenant id has 1 to 256 bytes"),
        (["--tenant", "a\tb"], 2, "no control characters and no `$`"),
        (["--listen", "http://plugins.example.com:7000"], 2, "which would go over the network in plaintext"),
    ] {
        let ran = folder.run(&[&["import", "dexto", "agent.yml"], args.as_slice()].concat()).await;
        assert!(ran.code == Some(code) && ran.stderr.contains(said), "{args:?}: {ran:?}");
    }
    let ran = folder.run(&["import", "dexto", "none.yml"]).await;
    assert!(ran.code == Some(2) && ran.stderr.starts_with("none.yml: can't be read: "), "{ran:?}");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1, "nothing is written");
}
