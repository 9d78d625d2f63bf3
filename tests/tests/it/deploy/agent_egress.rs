//! Tests what the chart's policy for agents lets them reach, by the rules of a NetworkPolicy.

use hookgate_tests::repository;
use serde_json::{Value, json};

use crate::deploy::chart_support::{Rendered, list};

/// The namespace that the renderer installs to.
const RELEASE: &str = "agents";

/// One end of a connection.
#[derive(Debug)]
struct Peer {
    /// `None` is outside the cluster.
    namespace: Option<&'static str>,
    labels: Value,
}

fn pod(namespace: &'static str, labels: Value) -> Peer {
    Peer { namespace: Some(namespace), labels }
}

fn outside() -> Peer {
    Peer { namespace: None, labels: json!({}) }
}

fn gateway(rendered: &Rendered) -> Peer {
    pod(RELEASE, rendered.template()["metadata"]["labels"].clone())
}

fn variant(name: &str) -> Rendered {
    Rendered::of(&repository::root().join(format!("deploy/helm/variants/{name}.yaml")))
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let mut equal = selector["matchLabels"].as_object().into_iter().flatten();
    let within = |expression: &Value| {
        assert_eq!(expression["operator"], "In", "no other one is used here");
        list(&expression["values"]).contains(&labels[expression["key"].as_str().unwrap()])
    };
    equal.all(|(name, value)| labels[name] == *value)
        && list(&selector["matchExpressions"]).iter().all(within)
}

/// The policies for what leaves a pod.
fn policies<'a>(rendered: &'a Rendered, from: &'a Peer) -> impl Iterator<Item = &'a Value> {
    rendered.kind("NetworkPolicy").filter(move |policy| {
        let here = policy["metadata"]["namespace"].as_str() == from.namespace;
        let is_egress = list(&policy["spec"]["policyTypes"]).contains(&json!("Egress"));
        here && is_egress && selects(&policy["spec"]["podSelector"], &from.labels)
    })
}

/// Whether an entry of `to` means the peer; `own` is the policy's namespace.
fn means(entry: &Value, own: Option<&str>, to: &Peer) -> bool {
    let Some(namespace) = to.namespace else { return entry.get("ipBlock").is_some() };
    let is_there = match entry.get("namespaceSelector") {
        Some(selector) => selects(selector, &json!({ "kubernetes.io/metadata.name": namespace })),
        None => own == Some(namespace) && entry.get("ipBlock").is_none(),
    };
    is_there && entry.get("podSelector").is_none_or(|selector| selects(selector, &to.labels))
}

/// Whether the network lets `from` open a connection to `to`. A pod without a policy may reach everything.
fn reaches(rendered: &Rendered, from: &Peer, to: &Peer, port: u64) -> bool {
    let is_let = |rule: &Value, policy: &Value| {
        let own = policy["metadata"]["namespace"].as_str();
        let is_peer = list(&rule["to"]).iter().any(|entry| means(entry, own, to));
        is_peer && list(&rule["ports"]).iter().any(|open| open["port"] == port)
    };
    let mut all = policies(rendered, from).peekable();
    all.peek().is_none()
        || all.any(|policy| list(&policy["spec"]["egress"]).iter().any(|rule| is_let(rule, policy)))
}

fn data_port(rendered: &Rendered) -> u64 {
    let data = list(&rendered.gateway()["ports"]).iter().find(|port| port["name"] == "data");
    data.expect("agents call it")["containerPort"].as_u64().unwrap()
}

#[test]
fn agents_reach_the_gateway_and_no_provider() {
    let rendered = variant("agent-egress");
    let (gateway, data) = (gateway(&rendered), data_port(&rendered));
    let dns = || pod("kube-system", json!({ "k8s-app": "kube-dns" }));
    for agent in
        [pod("research", json!({ "app": "agent" })), pod("support", json!({ "app": "worker", "a": "b" }))]
    {
        for (to, port, expected) in [
            (&gateway, data, true),
            (&gateway, 9090, false),
            (&gateway, 9091, false),
            (&dns(), 53, true),
            (&dns(), 443, false),
            (&pod("tools", json!({ "app": "mcp" })), 8000, true),
            (&pod("tools", json!({ "app": "mcp" })), 443, false),
            (&outside(), 443, false),
            (&outside(), 53, false),
            (&pod("research", json!({ "app": "proxy" })), 8080, false),
            // A pod that pretends to be the gateway, in a namespace where an agent may create one.
            (&pod("research", gateway.labels.clone()), data, false),
        ] {
            assert_eq!(reaches(&rendered, &agent, to, port), expected, "{agent:?} to {to:?}, port {port}");
        }
    }
    // The page says for whom it does not hold.
    for free in
        [&pod("research", json!({ "app": "web" })), &pod("other", json!({ "app": "agent" })), &gateway]
    {
        assert!(reaches(&rendered, free, &outside(), 443), "{free:?}");
    }
}

#[test]
fn in_the_gateway_s_own_namespace_each_policy_is_for_its_pods() {
    let rendered = variant("agent-egress-within");
    let agent = pod(RELEASE, json!({ "app": "agent" }));
    let names = |from: &Peer| -> Vec<String> {
        policies(&rendered, from)
            .map(|policy| policy["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&gateway(&rendered)), ["hookgate"]);
    assert_eq!(names(&agent), ["hookgate-agents"]);
    assert!(reaches(&rendered, &agent, &gateway(&rendered), data_port(&rendered)));
    assert!(!reaches(&rendered, &agent, &outside(), 443));
}

#[test]
fn there_is_no_policy_that_nobody_asked_for() {
    assert_eq!(variant("minimal").kind("NetworkPolicy").count(), 0);
    assert_eq!(variant("network-policy").kind("NetworkPolicy").count(), 1);
}
