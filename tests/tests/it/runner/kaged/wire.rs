//! What a plugin of kaged may write, and what ends it.

use serde_json::json;

use super::support::{KagedPlugin, injected};

#[tokio::test]
async fn noise_batches_and_notifications_do_not_disturb_a_plugin() {
    let main = r#"
def handle(message):
    if message["method"] == "config.update":
        return result(message, None)
    write("Starting...\n\n")
    send(method="catalog.updated", params={"count": 3, "key": "k3y-of-the-plugin"})
    write('[{"jsonrpc": "2.0", "id": %d, "result": {"inject": "of a batch"}}]\n' % message["id"])
    refused = next(messages())
    text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"inject": json.dumps(refused)}})
    for letter in text + "\n":
        write(letter)

serve(handle)
"#;
    let plugin = KagedPlugin::with_manifest(
        "hooks: [on_session_start]\nsystem_config_schema: { type: object }\n",
        main,
    );
    let served = plugin.config(json!({ "key": "k3y-of-the-plugin" })).serve(&["session_start"]).await;
    let expected = json!({
        "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": "batches are not allowed" },
    });
    assert_eq!(served.injected("acme", "primary").await, expected);
    let noise = served.logged("Starting...").await;
    assert_eq!(
        (&noise["level"], &noise["plugin"], &noise["tenant"]),
        (&json!("WARN"), &json!("program"), &json!("acme"))
    );
    let notification = served.logged("notification of the plugin").await;
    assert_eq!(notification["method"], "catalog.updated");
    let params = notification["params"].as_str().expect("a text");
    assert!(params.contains("\"count\": 3") && !params.contains("k3y-of-the-plugin"), "{params}");
    served.logged("the plugin sent a batch, which kaged doesn't allow").await;
}

#[tokio::test]
async fn a_message_before_the_handshake_ends_the_plugin() {
    let main = r#"
send(method="hello")
serve(lambda message: inject(message, "called"))
"#;
    let served = KagedPlugin::new(main).serve(&["session_start"]).await;
    let answer = served.session_start("acme", "primary").await;
    let (code, error) = served.fault(&answer).await;
    let expected = "the program was ended: it sent a message before it answered `initialize`";
    assert_eq!((answer.status, &*code, &*error), (502, "Aborted", expected));
}

#[tokio::test]
async fn a_line_over_four_mebibytes_ends_the_plugin_and_the_next_call_gets_a_new_one() {
    let main = r#"
def handle(message):
    large = not os.path.exists(os.path.expanduser("~/again"))
    open(os.path.expanduser("~/again"), "w").close()
    inject(message, "x" * (5 << 20) if large else "small")

serve(handle)
"#;
    let served = KagedPlugin::new(main).serve(&["session_start"]).await;
    let answer = served.session_start("acme", "primary").await;
    let (code, error) = served.fault(&answer).await;
    let expected = "the program's reply is longer than 4194304 bytes (`limits.output`)";
    assert_eq!((answer.status, &*code, &*error), (502, "ResourceExhausted", expected));
    assert_eq!(injected(&served.session_start("acme", "primary").await), "small");
}
