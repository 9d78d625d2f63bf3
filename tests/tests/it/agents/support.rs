//! Gateways for the drop-ins, and what their plugins saw.

use std::path::PathBuf;

use hookgate_proto::plugin::v1::CallContext;
use hookgate_tests::{
    fake::{Act, FakePlugin, HOOKS, Payload, Seen},
    gateway::{Gateway, Setup},
    repository,
};
use serde_json::{Value, json};

/// The folder of a drop-in.
pub(super) fn example(name: &str) -> PathBuf {
    repository::root().join("examples").join(name)
}

/// The address that the drop-ins are configured with.
pub(super) fn url(gateway: &Gateway) -> String {
    format!("http://{}", gateway.data_addr())
}

/// A plugin that is asked at these hooks only.
pub(super) async fn hook_plugin(name: &str, hooks: &[&str], act: Act) -> FakePlugin {
    FakePlugin::named(name).only(&[]).hooks(hooks).at(HOOKS, act).start().await
}

/// A gateway for the tenant `acme` that asks these plugins in this order at all hooks they offer.
pub(super) async fn gateway(plugins: &[(&FakePlugin, &[&str])]) -> Gateway {
    let bind = |setup: Setup, (priority, (plugin, hooks)): (i64, &(&FakePlugin, &[&str]))| {
        setup.plugin_without_breaker(plugin).binding_with(plugin.name(), priority, &json!({ "hooks": hooks }))
    };
    (1..).zip(plugins).fold(Gateway::with().tenant("acme"), bind).start().await
}

/// A hook that a plugin saw: its name, its body, and who called.
pub(super) struct SeenHook {
    pub(super) hook: String,
    pub(super) body: Value,
    pub(super) context: CallContext,
}

pub(super) fn seen_hooks(plugin: &FakePlugin) -> Vec<SeenHook> {
    let read = |seen: Seen| {
        let Payload::Hook(payload) = seen.payload else { panic!("not a hook: {:?}", seen.payload) };
        SeenHook {
            hook: payload.hook,
            body: serde_json::from_slice(&payload.body).expect("a body is JSON"),
            context: seen.call.context.expect("a call has a context"),
        }
    };
    plugin.seen().into_iter().map(read).collect()
}
