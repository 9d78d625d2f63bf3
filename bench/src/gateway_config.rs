//! The configurations of the measured gateways. They say where the gateway and its plugins are, who may call,
//! and which plugins run. Everything else is the default.

use std::time::Duration;

use hookgate_sdk::{
    Capability,
    agent::{Claims, Signer},
};
use serde_json::{Value, json};

use crate::{
    BenchError,
    certificates::CertificateFiles,
    payload::{HOOK, TENANT},
};

pub(crate) const SIGNING_SECRET: &str = "a secret of the benchmark, 32 bytes or more";
pub(crate) const ISSUER: &str = "https://id.example.com";
pub(crate) const AUDIENCE: &str = "hookgate";
pub(crate) const POINTS: [&str; 4] =
    ["before_llm_request", "before_tool_call", "after_tool_result", "before_response"];

/// A plugin's name and its endpoint.
pub(crate) type PluginAddress<'a> = (&'a str, &'a str);

/// A gateway that runs these plugins one after another for its tenant.
pub(crate) fn chain(plugins: &[PluginAddress<'_>]) -> Value {
    let bindings = plugins.iter().enumerate();
    let bindings = bindings
        .map(|(number, (name, _))| json!({ "plugin": name, "tenant": "*", "priority": 10 * (number + 1) }));
    with(&[TENANT.to_owned()], plugins, bindings.collect())
}

/// Opens the storage, on SQLite, to the plugin at this place in the list.
pub(crate) fn open_storage(config: &mut Value, plugin: usize, grants: &[Capability]) {
    config["server"]["host_addr"] = json!("127.0.0.1:0");
    config["store"] = json!({ "url": "sqlite:hookgate.db", "last_good": "last-good.json" });
    let grants: Vec<_> = grants.iter().map(|grant| grant.as_str()).collect();
    config["plugins"][plugin]["grants"] = json!(grants);
}

/// Like [`chain`], with TLS on the data port and to the plugins.
pub(crate) fn tls_chain(plugins: &[PluginAddress<'_>], files: &CertificateFiles) -> Value {
    let mut config = chain(plugins);
    config["server"]["tls"] = json!({ "cert_file": files.certificate, "key_file": files.key });
    let entries = config["plugins"].as_array_mut();
    entries.into_iter().flatten().for_each(|plugin| plugin["tls"] = json!({ "ca_file": files.ca }));
    config
}

/// A gateway for the models of a provider. The plugin is asked at these points.
pub(crate) fn llm(provider: &str, plugin: PluginAddress<'_>, points: &[&str]) -> Value {
    let mut config = if points.is_empty() { empty() } else { chain(&[plugin]) };
    let upstream = json!({ "name": "provider", "base_url": format!("{provider}/v1"), "credential": "sk-of-the-operator" });
    config["llm"] = json!({ "upstreams": [upstream], "models": [{ "match": "*", "upstream": "provider" }] });
    if !points.is_empty() {
        config["bindings"][0]["points"] = json!(points);
    }
    config
}

/// A gateway that asks these plugins at the hook, all at the same time.
pub(crate) fn hook(plugins: &[PluginAddress<'_>]) -> Value {
    let mut config = chain(plugins);
    let bindings = config["bindings"].as_array_mut();
    bindings.into_iter().flatten().for_each(|binding| {
        binding["hooks"] = json!([HOOK]);
        binding["mode"] = json!("advise");
    });
    config
}

/// Many tenants, each with one step at each point and another plugin there.
pub(crate) fn one_step_for_each_tenant(tenants: usize, plugins: &[PluginAddress<'_>]) -> Value {
    let binding = |tenant: usize, point: usize| {
        let (name, _) = plugins[(tenant + point) % plugins.len()];
        json!({
            "name": format!("{}-{point}", tenant_id(tenant)), "plugin": name, "tenant": tenant_id(tenant),
            "priority": 10 * (point + 1), "points": [POINTS[point]],
        })
    };
    let bindings = (0..tenants).flat_map(|tenant| (0..POINTS.len()).map(move |point| (tenant, point)));
    let ids: Vec<_> = (0..tenants).map(tenant_id).collect();
    with(&ids, plugins, bindings.map(|(tenant, point)| binding(tenant, point)).collect())
}

/// Many tenants that each run every plugin at every point.
pub(crate) fn all_plugins_for_each_tenant(tenants: usize, plugins: &[PluginAddress<'_>]) -> Value {
    let ids: Vec<_> = (0..tenants).map(tenant_id).collect();
    let binding = |(number, id): (usize, &String)| {
        let (name, _) = plugins[number];
        json!({ "name": format!("{id}-{number}"), "plugin": name, "tenant": id, "priority": 10 * (number + 1) })
    };
    let bindings = ids.iter().flat_map(|id| (0..plugins.len()).map(move |number| (number, id)));
    with(&ids, plugins, bindings.map(binding).collect())
}

/// A gateway without plugins.
pub(crate) fn empty() -> Value {
    with(&[TENANT.to_owned()], &[], Vec::new())
}

fn with(tenants: &[String], plugins: &[PluginAddress<'_>], bindings: Vec<Value>) -> Value {
    let tenants: Vec<_> = tenants.iter().map(|id| json!({ "id": id })).collect();
    let plugins = plugins.iter().map(|(name, endpoint)| json!({ "name": name, "endpoint": endpoint }));
    let issuer = json!({
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "keys": [{ "alg": "HS256", "secret": SIGNING_SECRET }],
        "tenants": "*",
    });
    json!({
        "server": { "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0" },
        "auth": { "issuers": [issuer] },
        "tenants": { "list": tenants },
        "plugins": plugins.collect::<Vec<_>>(),
        "bindings": bindings,
    })
}

/// The id of a tenant of a configuration with many.
pub(crate) fn tenant_id(number: usize) -> String {
    format!("tenant-{number:05}")
}

/// A token of a tenant.
pub(crate) fn token(tenant: &str) -> Result<String, BenchError> {
    let claims = Claims {
        issuer: ISSUER.into(),
        audience: AUDIENCE.into(),
        tenant: tenant.into(),
        operator: "bench".into(),
    };
    Ok(Signer::hs256(SIGNING_SECRET.as_bytes(), claims)?.with_ttl(Duration::from_secs(3600)).token())
}
