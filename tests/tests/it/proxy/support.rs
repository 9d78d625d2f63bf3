//! A gateway with one plugin behind a faulty network: a tenant that needs the plugin, one that goes on
//! without it, and a witness after it. Tests run over every transport in [`TRANSPORTS`].

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Builder, FakePlugin, Payload, Seen},
    gateway::{Gateway, Line, Setup},
    metrics::Scrape,
    proxy::Proxy,
    token::token,
};
use serde_json::{Value, json};

use crate::failure_matrix::rig::Transport;

pub(crate) const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
/// How the gateway reaches the plugin.
pub(crate) const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Tls];
/// Contains a number above 2^53, a null, spaces and escapes: parsing and serializing it would change it.
pub(crate) const RAW: &str = r#"{"z": 9007199254740993,  "a": {"n": null}, "u": "Zo\u00eb ✓"}"#;

/// Everything there is.
pub(crate) struct Rig {
    pub(crate) gateway: Gateway,
    pub(crate) plugin: FakePlugin,
    pub(crate) proxy: Proxy,
    pub(crate) witness: FakePlugin,
    /// Its chains stop if the plugin fails.
    pub(crate) strict: HttpAgent,
    /// Its chains go on if the plugin fails.
    pub(crate) lenient: HttpAgent,
}

impl Rig {
    /// Registers `plugin` as `shaky` with these further members. Its steps have this timeout.
    pub(crate) async fn start(transport: Transport, plugin: Builder, timeout: &str, members: Value) -> Self {
        Rig::with(transport, plugin, timeout, members, |setup| setup).await
    }

    pub(crate) async fn with(
        transport: Transport,
        plugin: Builder,
        timeout: &str,
        mut members: Value,
        more: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let plugin = transport.start(plugin).await;
        let witness = FakePlugin::named("witness").start().await;
        let proxy = Proxy::before(&plugin.endpoint()).await;
        let scheme = plugin.endpoint().split("://").next().unwrap_or_default().to_owned();
        members["endpoint"] = json!(proxy.endpoint(&scheme));
        let step = |tenant| json!({ "tenant": tenant, "timeout": timeout });
        let mut lenient = step("lenient");
        lenient["blocking"] = json!(false);
        let setup = Gateway::with()
            .tenant("strict")
            .tenant("lenient")
            .plugin_with(&plugin, &members)
            .plugin(&witness)
            .binding_with("shaky", 1, &step("strict"))
            .binding_with("shaky", 1, &lenient)
            .binding("witness", 2);
        let gateway = more(setup).start().await;
        let (strict, lenient) = (gateway.http(&token("strict")), gateway.http(&token("lenient")));
        Rig { gateway, plugin, proxy, witness, strict, lenient }
    }

    /// Waits until the gateway has logged this event this many times.
    pub(crate) async fn wait_until_logged(&self, event: &str, times: usize) {
        let mut seen = 0;
        let nth = |line: &Line| {
            seen += usize::from(line.field("event") == Some(&json!(event)));
            seen == times
        };
        self.gateway.log().wait_for(nth).await;
    }

    /// Waits until no call is in flight, which only the gauge shows.
    pub(crate) async fn wait_until_idle(&self) {
        for _ in 0..500 {
            if Scrape::of(&self.gateway).await.sum("hookgate_in_flight", &[]) == 0.0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("calls stay in flight");
    }
}

/// A body with this id, and arguments that any parsing would change.
pub(crate) fn body(call: &str) -> String {
    format!(r#"{{"payload":{{"tool_name":"fs.read","args":{RAW},"call_id":"{call}"}}}}"#)
}

pub(crate) fn call(agent: &HttpAgent, id: &str) -> tokio::task::JoinHandle<HttpAnswer> {
    let (agent, body) = (agent.clone(), body(id));
    tokio::spawn(async move { agent.post_text(POINT, body).await })
}

pub(crate) fn id(seen: &Seen) -> String {
    let Payload::BeforeToolCall(payload) = &seen.payload else { panic!("{seen:?}") };
    payload.call_id.clone().unwrap_or_default()
}

/// How often the plugin executed the call with this id.
pub(crate) fn executions(plugin: &FakePlugin, call: &str) -> usize {
    plugin.seen().iter().filter(|seen| id(seen) == call).count()
}

/// Checks that there is no decision, and that the answer names the plugin.
pub(crate) fn assert_stopped(answer: &HttpAnswer, status: u16, code: &str) {
    assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{answer:?}");
    assert_eq!(answer.header("hookgate-decision"), None, "{answer:?}");
    let detail = answer.body["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("Plugin 'shaky' "), "{answer:?}");
}

/// Checks that the step was skipped with this code, and that the payload is unchanged, byte for byte.
pub(crate) fn assert_skipped(answer: &HttpAnswer, code: &str, call: &str) {
    assert_eq!((answer.status, answer.header("hookgate-decision")), (200, Some("continue")), "{answer:?}");
    assert_eq!(answer.body["steps"][0]["outcome"], json!("failed_open"), "{answer:?}");
    assert_eq!(answer.body["notices"][0]["code"], json!(code), "{answer:?}");
    let payload = format!(r#""payload":{{"tool_name":"fs.read","args":{RAW},"call_id":"{call}"}}"#);
    assert!(answer.text.contains(&payload), "{answer:?}");
    assert_eq!(answer.body["modified"], json!(false), "{answer:?}");
}
