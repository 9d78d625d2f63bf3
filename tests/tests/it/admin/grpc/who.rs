//! Tests authorization over gRPC: the rules of HTTP apply, and a tenant's token can't find out anything
//! about other tenants.

use hookgate::core::error::Code;
use hookgate_proto::{
    admin::v1::{self as wire, Kind},
    types::v1::ExtensionPoint,
};
use hookgate_tests::{
    agent::{HttpAgent, reason},
    openapi::Port,
    token::{Token, token},
};
use serde_json::json;
use tonic::{Response, Status};

use crate::{
    admin::{
        grpc::{
            rpcs::assert_code,
            support::{Client, channel, client, dial, object, parsed, text},
        },
        registry::support::{administrator, apply, confined, head, stored, written},
    },
    edge::support::assert_http_error,
};

/// What other tenants must never see.
const CANARY: &str = "canary-of-globex";

/// One answer as text, or its status.
type Told = Result<String, Status>;

fn told<M: std::fmt::Debug>(answer: Result<Response<M>, Status>) -> Told {
    answer.map(|answer| format!("{:?}", answer.into_inner()))
}

async fn get(client: &mut Client, kind: Kind, name: &str) -> Told {
    told(client.get_object(wire::GetObjectRequest { kind: kind.into(), name: name.into() }).await)
}

async fn list(client: &mut Client, kind: Kind, tenant: Option<&str>) -> Result<Vec<String>, Status> {
    let tenant = tenant.map(str::to_owned);
    let request =
        wire::ListObjectsRequest { kind: kind.into(), tenant, ..wire::ListObjectsRequest::default() };
    let objects = client.list_objects(request).await?.into_inner().objects;
    Ok(objects.into_iter().map(|object| object.name).collect())
}

/// Calls each rpc that needs `hookgate:admin`, for this tenant and with the right version.
async fn administration(client: &mut Client, tenant: &str) -> Vec<Told> {
    let (kind, name) = (Kind::Tenant.into(), tenant.to_owned());
    let expected_version = Some(1);
    let put = wire::PutObjectRequest {
        kind,
        name: name.clone(),
        spec_json: text(&json!({})),
        expected_version,
        ..Default::default()
    };
    let patch = wire::PatchObjectRequest {
        kind,
        name: name.clone(),
        patch_json: text(&json!({})),
        expected_version,
        ..Default::default()
    };
    let delete = wire::DeleteObjectRequest { kind, name, expected_version, ..Default::default() };
    let plugin = || "content-policy".to_owned();
    let document_json = text(&json!({ "tenants": [{ "id": tenant }] }));
    vec![
        told(client.put_object(put).await),
        told(client.patch_object(patch).await),
        told(client.delete_object(delete).await),
        told(client.enable_plugin(wire::EnablePluginRequest { name: plugin(), ..Default::default() }).await),
        told(
            client.disable_plugin(wire::DisablePluginRequest { name: plugin(), ..Default::default() }).await,
        ),
        told(client.apply(wire::ApplyRequest { document_json, ..Default::default() }).await),
        told(client.list_revisions(wire::ListRevisionsRequest::default()).await),
        told(client.get_revision(wire::GetRevisionRequest { number: 1 }).await),
        told(client.diff_revisions(wire::DiffRevisionsRequest { from: Some(0), to: None }).await),
        told(client.roll_back(wire::RollBackRequest { number: Some(1), ..Default::default() }).await),
    ]
    .into_iter()
    .chain(acts(client, tenant).await)
    .collect()
}

/// Those of them that run an operation or begin a bypass.
async fn acts(client: &mut Client, tenant: &str) -> Vec<Told> {
    let name = || "content-policy".to_owned();
    let (binding, tenant, reason) = (name(), tenant.to_owned(), "why".to_owned());
    let put = wire::PutBypassRequest {
        binding: binding.clone(),
        tenant: tenant.clone(),
        for_ms: 1000,
        reason,
        dry_run: false,
    };
    let delete = wire::DeleteBypassRequest { binding, tenant, ..Default::default() };
    let approve = wire::ApprovePluginRequest { name: name(), ..Default::default() };
    let call = wire::CallPluginRequest { name: name(), ..Default::default() };
    vec![
        told(client.put_bypass(put).await),
        told(client.delete_bypass(delete).await),
        told(client.approve_plugin(approve).await),
        told(client.reload(wire::ReloadRequest::default()).await),
        told(
            client.describe_plugin(wire::DescribePluginRequest { name: name(), ..Default::default() }).await,
        ),
        told(client.drain_plugin(wire::DrainPluginRequest { name: name(), ..Default::default() }).await),
        told(
            client
                .delete_plugin_data(wire::DeletePluginDataRequest { name: name(), ..Default::default() })
                .await,
        ),
        told(client.check_upstreams(wire::CheckUpstreamsRequest::default()).await),
        told(client.call_plugin(call).await),
    ]
}

async fn plan(client: &mut Client, tenant: &str) -> Told {
    told(client.get_plan(wire::GetPlanRequest { tenant: tenant.into(), point: 0, hook: None }).await)
}

async fn explain(client: &mut Client, tenant: &str) -> Told {
    let point = ExtensionPoint::BeforeLlmRequest.into();
    told(client.explain(wire::ExplainRequest { tenant: tenant.into(), point, ..Default::default() }).await)
}

#[track_caller]
fn refused_as(told: Told, code: Code) {
    assert_code(told.map(Response::new), code);
}

#[tokio::test]
async fn the_token_decides_as_it_does_over_http() {
    let it = stored().await;
    let channel = channel(&it.gateway).await;
    let operators = Token::for_operators;
    for (bearer, code) in [
        (None, Code::TokenMissing),
        (Some("nonsense".to_owned()), Code::TokenInvalid),
        // The data port has another audience.
        (Some(token("acme")), Code::TokenInvalid),
        (Some(operators().expiring_in(-120).mint()), Code::TokenExpired),
        (Some(operators().scopes("hookgate:invoke").mint()), Code::ScopeMissing),
        (Some(operators().scopes("hookgate:plugin").mint()), Code::ScopeMissing),
    ] {
        let mut client = client(channel.clone(), bearer.as_deref());
        refused_as(told(client.get_status(wire::GetStatusRequest {}).await), code);
        refused_as(told(client.stream_events(wire::StreamEventsRequest::default()).await), code);
        // Without a token, nobody learns which methods exist.
        for refused in administration(&mut client, "acme").await {
            refused_as(refused, code);
        }
        let http = HttpAgent::new(it.gateway.admin_addr().unwrap()).of(Port::Admin);
        let http = bearer.iter().fold(http, |agent, token| agent.with_token(token));
        assert_http_error(&http.get("/admin/v1/status").await.unwrap(), code);
    }
    let mut reader = dial(&it.gateway, &operators().mint()).await;
    assert!(reader.get_status(wire::GetStatusRequest {}).await.is_ok());
    assert_eq!(list(&mut reader, Kind::Tenant, None).await.unwrap(), ["acme"]);
    assert_eq!(list(&mut reader, Kind::Bypass, None).await.unwrap(), [""; 0]);
    assert!(plan(&mut reader, "acme").await.is_ok() && explain(&mut reader, "acme").await.is_ok());
    for refused in administration(&mut reader, "acme").await {
        refused_as(refused, Code::ScopeMissing);
    }
    assert_eq!(head(&it.operator).await, 1);
}

#[tokio::test]
async fn a_token_with_a_tenant_sees_its_own_and_can_guess_nothing_else() {
    let it = stored().await;
    let document = json!({
        "tenants": [{ "id": "globex", "labels": { "secret": CANARY } }],
        "bindings": [
            { "name": "of-globex", "plugin": "content-policy", "tenant": "globex", "priority": 20 },
            { "name": "of-acme", "plugin": "content-policy", "tenant": "acme", "priority": 20 },
        ],
    });
    written(&apply(&it.operator, "", document).await);
    let mut acme = dial(&it.gateway, &confined("acme")).await;
    let request = wire::GetObjectRequest { kind: Kind::Tenant.into(), name: "acme".into() };
    let own = acme.get_object(request).await.unwrap().into_inner().object.unwrap();
    assert_eq!(object(&own)["id"], "acme");
    assert_eq!(list(&mut acme, Kind::Binding, None).await.unwrap(), ["of-acme"]);
    assert_eq!(list(&mut acme, Kind::Binding, Some("globex")).await.unwrap(), [""; 0]);
    assert!(get(&mut acme, Kind::Binding, "of-acme").await.is_ok());
    let request = wire::GetPlanRequest { tenant: "acme".into(), point: 0, hook: None };
    let shown = acme.get_plan(request).await.unwrap().into_inner();
    assert_eq!(parsed(&shown.plan_json)["tenant"], "acme");
    let said = explain(&mut acme, "acme").await.unwrap();
    assert!(!said.contains(CANARY) && !said.contains("globex"), "{said}");

    let mut hidden = vec![
        told(acme.get_status(wire::GetStatusRequest {}).await),
        list(&mut acme, Kind::Plugin, None).await.map(|names| names.concat()),
        list(&mut acme, Kind::Tenant, None).await.map(|names| names.concat()),
        list(&mut acme, Kind::Bypass, None).await.map(|names| names.concat()),
    ];
    let long = "a".repeat(4096);
    for name in ["globex", "nobody", "ACME", "acme ", "", "*", "../globex", "acme\0", "of-globex", &long] {
        hidden.push(get(&mut acme, Kind::Tenant, name).await);
        hidden.push(get(&mut acme, Kind::Binding, name).await);
        hidden.push(get(&mut acme, Kind::Plugin, name).await);
        hidden.push(plan(&mut acme, name).await);
        hidden.push(explain(&mut acme, name).await);
    }
    hidden.push(get(&mut acme, Kind::Plugin, "content-policy").await);
    hidden.push(get(&mut acme, Kind::Binding, "content-policy").await);
    hidden.extend(administration(&mut acme, "acme").await);
    hidden.extend(administration(&mut acme, "globex").await);
    for told in hidden {
        let status = told.expect_err("it is not there for this one");
        let code = (Code::NotFound.grpc(), Some(Code::NotFound.to_string()));
        assert_eq!(reason(&status), code, "{status:?}");
        assert_eq!(status.message(), "There is nothing here that the token may see");
        let all = format!("{status:?}{}", String::from_utf8_lossy(status.details()));
        assert!(!all.contains(CANARY) && !all.contains("globex"), "{all}");
    }
    assert_eq!(head(&it.operator).await, 2, "nothing was written");
    let mut operator = dial(&it.gateway, &administrator()).await;
    assert!(get(&mut operator, Kind::Tenant, "globex").await.unwrap().contains(CANARY), "it could be told");
}
