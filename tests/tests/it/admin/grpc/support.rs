//! Calls the admin API over gRPC, and converts its answers to the form of HTTP.

use std::path::{Path, PathBuf};

use hookgate_proto::{
    admin::v1::{self as wire, admin_service_client::AdminServiceClient},
    types::v1::ExtensionPoint,
};
use hookgate_tests::{agent::Bearer, gateway::Gateway};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;
use tonic::{
    Status,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

pub(crate) type Client = AdminServiceClient<InterceptedService<Channel, Bearer>>;

/// A channel to the gateway's admin port.
pub(crate) async fn channel(gateway: &Gateway) -> Channel {
    let address = gateway.admin_addr().expect("the admin port is open");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address makes a URL");
    endpoint.connect().await.expect("the admin port listens")
}

/// A channel to the admin socket at `path`.
pub(crate) async fn socket(path: &Path) -> Channel {
    let path: PathBuf = path.to_owned();
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://admin.sock");
    endpoint.connect_with_connector(connect).await.expect("the socket listens")
}

pub(crate) fn client(channel: Channel, token: Option<&str>) -> Client {
    AdminServiceClient::with_interceptor(channel, Bearer::new(token)).max_decoding_message_size(32 << 20)
}

/// A client with this token.
pub(crate) async fn dial(gateway: &Gateway, token: &str) -> Client {
    client(channel(gateway).await, Some(token))
}

/// A member's JSON text.
pub(crate) fn text(value: &Value) -> bytes::Bytes {
    value.to_string().into()
}

/// The value of a member's JSON text.
pub(crate) fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
}

/// The violations of an error, in the form of HTTP.
pub(crate) fn violations(status: &Status) -> Value {
    let violations = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
    let one = |violation: tonic_types::FieldViolation| json!({ "pointer": violation.field, "message": violation.description });
    violations.into_iter().map(one).collect()
}

/// An enum's value as in JSON: KIND_PLUGIN is `plugin`.
fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or_else(|| panic!("{name} is no {prefix}...")).to_lowercase()
}

fn kind(kind: i32) -> String {
    short(wire::Kind::try_from(kind).expect("a kind").as_str_name(), "KIND_")
}

fn owner(owner: i32) -> String {
    short(wire::Owner::try_from(owner).expect("an owner").as_str_name(), "OWNER_")
}

fn standing(standing: i32) -> String {
    short(wire::TenantStatus::try_from(standing).expect("one").as_str_name(), "TENANT_STATUS_")
}

fn point(point: i32) -> String {
    short(ExtensionPoint::try_from(point).expect("a point").as_str_name(), "EXTENSION_POINT_")
}

pub(crate) fn object(object: &wire::Object) -> Value {
    let of = kind(object.kind);
    let mut members: Map<String, Value> = match of.as_str() {
        "plugin" => parsed(&object.status_json).as_object().expect("an object").clone(),
        _ => {
            assert!(object.status_json.is_empty(), "{object:?}");
            Map::new()
        }
    };
    let name = if of == "tenant" { "id" } else { "name" };
    for (member, value) in [
        (name, json!(object.name)),
        ("owner", json!(owner(object.owner))),
        ("version", json!(object.version)),
        ("spec", parsed(&object.spec_json)),
    ] {
        assert_eq!(members.insert(member.into(), value), None, "{member} is said once");
    }
    members.into()
}

/// A bypass as in a list.
pub(crate) fn bypass(object: &wire::Object) -> Value {
    assert_eq!((kind(object.kind).as_str(), owner(object.owner).as_str()), ("bypass", "api"), "{object:?}");
    let mut members = parsed(&object.spec_json);
    assert_eq!(object.name, format!("{}@{}", members["binding"], members["tenant"]).replace('"', ""));
    members["version"] = json!(object.version);
    members["active"] = parsed(&object.status_json)["active"].take();
    members
}

fn content(content: &wire::Content) -> Value {
    json!({ "owner": owner(content.owner), "spec": parsed(&content.spec_json) })
}

pub(crate) fn changes(changes: &[wire::Change]) -> Value {
    let one = |change: &wire::Change| {
        let mut one = json!({ "kind": kind(change.kind), "name": change.name });
        if let Some(before) = &change.before {
            one["before"] = content(before);
        }
        if let Some(after) = &change.after {
            one["after"] = content(after);
        }
        one
    };
    changes.iter().map(one).collect()
}

fn effect(effect: &wire::TenantEffect) -> Value {
    let mut points = Map::new();
    for plan in &effect.points {
        let wire::PlanEffect { added, removed, changed, order, failing, lacks_steps, lacked_steps, .. } =
            plan;
        let failing = failing.iter().map(|wire::FailingStep { binding, reason, detail }| {
            json!({ "binding": binding, "reason": reason, "detail": detail })
        });
        let failing: Value = failing.collect();
        let mut said = json!({
            "added": added, "removed": removed, "changed": changed, "order": order, "failing": failing,
        });
        if let Some(digest) = &plan.plan_digest {
            said["plan_digest"] = json!(digest);
        }
        if *lacks_steps {
            said["lacks_steps"] = json!(true);
        }
        if *lacked_steps {
            said["lacked_steps"] = json!(true);
        }
        points.insert(point(plan.point), said);
    }
    json!({
        "tenant": effect.tenant, "before": standing(effect.before), "after": standing(effect.after),
        "settings": effect.settings, "points": points,
    })
}

pub(crate) fn written(written: Option<wire::WriteResult>) -> Value {
    let wire::WriteResult { revision, dry_run, changes: changed, effects, unvalidated, active, rejected } =
        written.expect("every write says what came of it");
    let rejected = rejected.iter().map(|wire::RejectedEntry { plugin, reason, detail }| {
        json!({ "plugin": plugin, "reason": reason, "detail": detail })
    });
    let rejected: Value = rejected.collect();
    let effects = effects.map(|effects| {
        let sample: Vec<_> = effects.sample.iter().map(effect).collect();
        json!({ "tenants": effects.tenants, "sample": sample })
    });
    json!({
        "revision": revision, "dry_run": dry_run, "changes": changes(&changed), "effects": effects,
        "unvalidated": unvalidated, "active": active, "rejected": rejected,
    })
}

/// A revision with these `changes`.
pub(crate) fn revision(revision: &wire::Revision, changes: Option<Value>) -> Value {
    let wire::Revision { number, at, author, reason, counts } = revision;
    let counts = counts.expect("they are always there");
    let counts = json!({ "plugins": counts.plugins, "tenants": counts.tenants, "bindings": counts.bindings, "upstreams": counts.upstreams, "models": counts.models, "bypasses": counts.bypasses });
    let changes = changes.unwrap_or(counts);
    json!({ "number": number, "at": at, "author": author, "reason": reason, "changes": changes })
}

/// A page token in the form of HTTP.
pub(crate) fn cursor(token: &str) -> Value {
    if token.is_empty() { Value::Null } else { token.into() }
}
