//! The handshake of kaged, configuration and the environment.

use serde_json::json;

use super::{
    super::support::{SECRET, run},
    support::{KagedPlugin, injected},
};
use crate::cli::support::Folder;

#[tokio::test]
async fn a_plugin_is_initialised_before_anything_else() {
    let main = r#"
first = []
for message in messages():
    if message["method"].startswith("kaged.hook."):
        inject(message, first)
        continue
    first.append(message)
    if message["method"] == "initialize":
        result(message, introduction())
"#;
    let served = KagedPlugin::new(main).serve(&["session_start"]).await;
    let params = json!({
        "daemon_version": env!("CARGO_PKG_VERSION"), "api_version": 1, "plugin_name": "program",
        "storage_available": false, "projects": [],
    });
    let expected = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params },
        { "jsonrpc": "2.0", "method": "initialized", "params": {} },
    ]);
    assert_eq!(served.injected("acme", "primary").await, expected);
}

#[tokio::test]
async fn a_plugin_that_is_another_one_than_its_manifest_says_gets_no_call() {
    for (members, reason) in [
        ("name='other'", "the plugin says that its name is other, and its manifest says program"),
        ("api_version=2", "the plugin must answer `initialize` with `api_version`: 1"),
        (
            "capabilities_used=['net:[x]']",
            "the plugin uses the capability net:[x], which its manifest doesn't name",
        ),
    ] {
        let main =
            format!("serve(lambda message: inject(message, 'called'), dict(introduction(), {members}))\n");
        let served = KagedPlugin::new(&main).serve(&["session_start"]).await;
        let answer = served.session_start("acme", "primary").await;
        let fault = served.fault(&answer).await;
        assert_eq!((answer.status, fault), (502, ("Internal".to_owned(), reason.to_owned())));
    }
}

#[tokio::test]
async fn a_plugin_of_another_version_starts_with_a_warning() {
    let main = "serve(lambda message: inject(message, 'called'), dict(introduction(), version='0.1.1', methods=[]))\n";
    let served = KagedPlugin::new(main).serve(&["session_start"]).await;
    assert_eq!(injected(&served.session_start("acme", "primary").await), "called");
    for warning in [
        "the plugin says that its version is 0.1.1, and its manifest says 0.1.0",
        "the plugin doesn't name these tools in `methods`: program.echo",
    ] {
        served.logged(warning).await;
    }
}

const CONFIGURABLE: &str = "hooks: [on_session_start]\n\
    config_schema: { type: object, properties: { store: { type: string } } }\n\
    system_config_schema: { type: object, properties: { key: { type: string } } }\n";

#[tokio::test]
async fn a_plugin_gets_both_configurations_as_one_and_may_refuse_them() {
    let main = r#"
config = {}

def handle(message):
    global config
    if message.get("method") == "config.update":
        config = message["params"]["config"]
        refuse(message, -32004, "no such store") if config["store"] == "bad" else result(message, None)
    else:
        inject(message, [config, os.getpid()])

serve(handle)
"#;
    let plugin = KagedPlugin::with_manifest(CONFIGURABLE, main).config(json!({ "key": "k" }));
    let binding = |agent: &str, store: &str| {
        json!({
            "hooks": ["session_start"], "on_error": "fail", "config": { "store": store }, "name": store,
            "match": { "agents": [agent] },
        })
    };
    let served =
        plugin.serve_bound(&[binding("one", "a"), binding("two", "b"), binding("three", "bad")]).await;
    let start = async |agent: &str| {
        served
            .hook_with("acme", "session_start", &json!({ "body": {}, "context": { "agent_id": agent } }))
            .await
    };
    let (one, two) = (injected(&start("one").await), injected(&start("two").await));
    assert!(one.starts_with(r#"[{"store": "a", "key": "k"}"#), "{one}");
    assert!(two.starts_with(r#"[{"store": "b", "key": "k"}"#), "{two}");
    assert_eq!(injected(&start("one").await), one, "the same process answers");
    let refused = start("three").await;
    let (code, error) = served.fault(&refused).await;
    assert_eq!(
        (refused.status, &*code, &*error),
        (502, "InvalidArgument", "the plugin refuses its configuration: no such store (-32004)")
    );
}

#[tokio::test]
async fn a_plugin_that_takes_no_configuration_works_with_a_warning() {
    let main = r#"
def handle(message):
    if message.get("method") == "config.update":
        refuse(message, -32601, "unknown method")
    else:
        inject(message, "works")

serve(handle)
"#;
    let plugin = KagedPlugin::with_manifest(CONFIGURABLE, main).config(json!({ "key": "k" }));
    let served = plugin.serve(&["session_start"]).await;
    assert_eq!(injected(&served.session_start("acme", "primary").await), "works");
    served.logged("the plugin takes no `config.update`, so its configuration has no effect").await;
}

#[tokio::test]
async fn a_plugin_sees_kageds_environment_and_none_of_the_runners() {
    let main = r#"
serve(lambda message: inject(message, {"env": dict(os.environ), "cwd": os.getcwd()}))
"#;
    let manifest = "hooks: [on_session_start]\nenv: { LOG_LEVEL: info, MODE: manifest }\n";
    let plugin = KagedPlugin::with_manifest(manifest, main).entry(&json!({ "env": { "MODE": "operator" } }));
    let folder = plugin.directory.path().canonicalize().expect("it exists").join("plugin");
    let home = plugin.directory.path().canonicalize().expect("it exists").join("homes/program/acme");
    let served = plugin.serve(&["session_start"]).await;
    let got = served.injected("acme", "primary").await;
    assert_eq!(got["cwd"], folder.display().to_string());
    let expected = json!({
        "HOME": home, "TMPDIR": home.join("tmp"), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
        "HOOKGATE_PLUGIN": "program", "HOOKGATE_TENANT": "acme", "KAGED_PLUGIN_NAME": "program",
        "KAGED_PLUGIN_DIR": folder, "KAGED_API_VERSION": "1", "KAGED_PROJECT_ROOT": home, "KAGED_PROJECT_ID": "acme", "LOG_LEVEL": "info",
        "MODE": "operator",
    });
    let mut environment = got["env"].clone();
    // Python's own.
    environment.as_object_mut().expect("it is an object").remove("LC_CTYPE");
    assert_eq!(environment, expected);
    assert!(!got.to_string().contains(SECRET));
}

#[tokio::test]
async fn a_mistake_in_the_file_or_the_manifest_is_named_with_its_key() {
    let cases = [
        ("", json!({ "name": "other" }), "name: must be that in kaged-plugin.yaml, `program`"),
        ("", json!({ "version": "0.2.0" }), "version: kaged-plugin.yaml has 0.1.0, and 0.2.0 is required"),
        ("", json!({ "hooks": ["recall"] }), "hooks: comes from kaged-plugin.yaml: leave it out"),
        ("", json!({ "process": "per_call" }), "process: a plugin of kaged has one process for all calls"),
        ("", json!({ "directory": "./none" }), "directory: "),
        (
            "roles: [compactor]\n",
            json!({}),
            "kaged-plugin.yaml: roles: `compactor` needs the hook pre_compact",
        ),
    ];
    for (manifest, members, reason) in cases {
        let plugin = KagedPlugin::with_manifest(manifest, "").entry(&members);
        let file = plugin.write().join("runner.yaml").display().to_string();
        let arguments = ["runner", "stdio", &file, "--listen", "unix:///no/such/folder/s"];
        let ran = Folder::new().run(&arguments).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(reason), "{ran:?}");
    }
    // The one before is complete.
    let plugin = KagedPlugin::new("");
    let _runner = run(plugin.write()).await;
}
