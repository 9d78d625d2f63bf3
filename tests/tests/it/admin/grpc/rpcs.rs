//! Tests the admin API over gRPC, on TCP and the admin socket: each rpc, its errors, and the other services
//! of the port.

use hookgate::core::error::Code;
use hookgate_proto::{
    admin::v1::{self as wire, Kind, Owner},
    types::v1::ExtensionPoint,
};
use hookgate_tests::{
    agent::{Bearer, reason},
    gateway::Gateway,
    postgres::Cluster,
};
use serde_json::{Value, json};
use tonic::{Response, Status, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use tonic_types::StatusExt as _;

use crate::{
    admin::{
        grpc::support::{
            Client, changes, channel, client, dial, object, parsed, socket, text, violations, written,
        },
        registry::support::{Stored, administrator, get, head, stored, stored_as},
    },
    edge::support::{assert_no_panic, frame, frame_of, grpc_request, send_grpc},
    registry::support::{call, file_with},
};

const PUT: &str = "/hookgate.admin.v1.AdminService/PutObject";

fn tenant(name: &str, spec: &Value, expected: Option<u64>) -> wire::PutObjectRequest {
    wire::PutObjectRequest {
        kind: Kind::Tenant.into(),
        name: name.into(),
        spec_json: text(spec),
        expected_version: expected,
        reason: "a test's".into(),
        dry_run: false,
    }
}

#[track_caller]
pub(crate) fn assert_code<M: std::fmt::Debug>(answer: Result<Response<M>, Status>, code: Code) -> Status {
    let status = answer.expect_err("it is refused");
    assert_eq!(reason(&status), (code.grpc(), Some(code.as_str().to_owned())), "{status:?}");
    status
}

/// Calls every rpc once, each with the results of earlier ones.
async fn walk(it: &Stored, mut client: Client) {
    let status = client.get_status(wire::GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(parsed(&status.status_json)["ready"], json!(true));
    let made = client.put_object(tenant("globex", &json!({ "labels": { "a": "1" } }), Some(0))).await;
    let made = written(made.unwrap().into_inner().written);
    assert_eq!((&made["revision"], &made["active"]), (&json!(2), &json!(true)));
    assert_eq!(made["effects"]["sample"][0]["after"], "served");
    assert_eq!(call(&it.gateway, "globex").await.body["revision"], 2);
    let request = wire::PatchObjectRequest {
        kind: Kind::Tenant.into(),
        name: "globex".into(),
        patch_json: text(&json!({ "labels": { "a": null, "b": "2" } })),
        expected_version: Some(2),
        ..wire::PatchObjectRequest::default()
    };
    let patched = client.patch_object(request).await.unwrap().into_inner();
    assert_eq!(written(patched.written)["revision"], 3);
    let request = wire::GetObjectRequest { kind: Kind::Tenant.into(), name: "globex".into() };
    let got = client.get_object(request).await.unwrap().into_inner().object.unwrap();
    assert_eq!((got.owner(), got.version), (Owner::Api, Some(3)));
    assert_eq!(parsed(&got.spec_json), json!({ "id": "globex", "labels": { "b": "2" } }));
    let document = json!({
        "plugins": [{ "name": "own", "builtin": "content-policy", "config": { "max_input_chars": 9 } }],
        "bindings": [{ "plugin": "own", "tenant": "globex", "priority": 5 }],
    });
    let request = wire::ApplyRequest { document_json: text(&document), ..wire::ApplyRequest::default() };
    let applied = client.apply(request).await.unwrap().into_inner().written.unwrap();
    assert_eq!((applied.revision, applied.changes.len()), (Some(4), 2));
    let request =
        wire::ListObjectsRequest { kind: Kind::Plugin.into(), ..wire::ListObjectsRequest::default() };
    let list = client.list_objects(request).await.unwrap().into_inner();
    assert_eq!((list.revision, &*list.next_page_token), (4, ""));
    let shown: Vec<_> = list.objects.iter().map(object).collect();
    assert_eq!(json!(shown), get(&it.operator, "plugins").await.body["plugins"]);
    assert_eq!(shown[1]["spec"]["config"], json!({ "max_input_chars": "***" }));
    let name = "own".to_owned();
    let request = wire::DisablePluginRequest { name: name.clone(), ..wire::DisablePluginRequest::default() };
    let off = client.disable_plugin(request).await.unwrap().into_inner();
    assert_eq!(written(off.written)["revision"], 5);
    let point = ExtensionPoint::BeforeLlmRequest.into();
    let request = wire::GetPlanRequest { tenant: "globex".into(), point, hook: None };
    let plan = parsed(&client.get_plan(request).await.unwrap().into_inner().plan_json);
    assert_eq!(plan["points"].as_object().unwrap().len(), 1);
    let bindings = |plan: &Value| plan["points"]["before_llm_request"]["steps"].as_array().unwrap().len();
    assert_eq!(bindings(&plan), 1, "the plugin is off: {plan}");
    let request = wire::EnablePluginRequest { name, expected_version: Some(5), ..Default::default() };
    assert_eq!(client.enable_plugin(request).await.unwrap().into_inner().written.unwrap().revision, Some(6));
    let request = wire::ExplainRequest {
        tenant: "globex".into(),
        point: ExtensionPoint::BeforeLlmRequest.into(),
        text: Some("hidden".into()),
        ..wire::ExplainRequest::default()
    };
    let why = client.explain(request).await.unwrap().into_inner().explanation_json;
    assert_eq!(parsed(&why)["steps"].as_array().unwrap().len(), 2);
    assert!(!String::from_utf8_lossy(&why).contains("hidden"));
    surface(it, &mut client).await;
    back(it, client).await;
}

/// Explains what the LLM proxy does for a tenant.
async fn surface(it: &Stored, client: &mut Client) {
    let surface = wire::Surface::Llm.into();
    let request = wire::ExplainRequest { tenant: "globex".into(), surface, ..Default::default() };
    let said = parsed(&client.explain(request.clone()).await.unwrap().into_inner().explanation_json);
    assert_eq!(said, get(&it.operator, "tenants/globex/explain?surface=llm").await.body);
    let both = wire::ExplainRequest { tool: Some("x".into()), ..request };
    assert_eq!(client.explain(both).await.unwrap_err().code(), tonic::Code::InvalidArgument);
}

/// Reads what was written and rolls it back.
async fn back(it: &Stored, mut client: Client) {
    let request = wire::ListRevisionsRequest { page_size: Some(2), ..wire::ListRevisionsRequest::default() };
    let list = client.list_revisions(request).await.unwrap().into_inner();
    assert_eq!(list.revisions.iter().map(|one| one.number).collect::<Vec<_>>(), [6, 5]);
    let request = wire::ListRevisionsRequest { page_size: None, page_token: list.next_page_token };
    let list = client.list_revisions(request).await.unwrap().into_inner();
    assert_eq!((list.revisions.len(), &*list.next_page_token), (4, ""));
    let counts = list.revisions[0].counts.unwrap();
    assert_eq!((counts.plugins, counts.tenants, counts.bindings), (1, 0, 1));
    let one = client.get_revision(wire::GetRevisionRequest { number: 2 }).await.unwrap().into_inner();
    let revision = one.revision.unwrap();
    assert_eq!((revision.number, &*revision.reason), (2, "a test's"));
    let over_http = get(&it.operator, "revisions/2").await.body;
    assert_eq!((&over_http["changes"], &over_http["at"]), (&changes(&one.changes), &json!(revision.at)));
    let request = wire::DiffRevisionsRequest { from: Some(2), to: Some(3) };
    let differs = client.diff_revisions(request).await.unwrap().into_inner();
    assert_eq!((differs.from, differs.to, differs.changes.len()), (2, 3, 1));
    let request = wire::DeleteObjectRequest {
        kind: Kind::Plugin.into(),
        name: "own".into(),
        expected_version: Some(6),
        ..wire::DeleteObjectRequest::default()
    };
    let in_use = assert_code(client.delete_object(request.clone()).await, Code::Conflict);
    assert_eq!(violations(&in_use)[0]["pointer"], "/bindings/own@globex/plugin");
    let request = wire::DeleteObjectRequest { force: true, ..request };
    let gone = client.delete_object(request).await.unwrap().into_inner().written.unwrap();
    assert_eq!((gone.revision, gone.changes.len()), (Some(7), 2));
    // A rollback to before the first revision would delete everything.
    let unsaid = assert_code(client.roll_back(wire::RollBackRequest::default()).await, Code::PayloadInvalid);
    assert_eq!(violations(&unsaid)[0]["pointer"], "/number");
    let empty = wire::RollBackRequest { number: Some(0), ..wire::RollBackRequest::default() };
    assert_code(client.roll_back(empty).await, Code::NotFound);
    let unsaid = client.diff_revisions(wire::DiffRevisionsRequest::default()).await;
    assert_eq!(violations(&assert_code(unsaid, Code::PayloadInvalid))[0]["pointer"], "/from");
    let request = wire::RollBackRequest { number: Some(6), ..wire::RollBackRequest::default() };
    let again = client.roll_back(request).await.unwrap().into_inner().written.unwrap();
    assert_eq!((again.revision, again.changes.len()), (Some(8), 2));
}

#[tokio::test]
async fn every_rpc_answers_over_tcp_with_a_token() {
    let it = stored().await;
    walk(&it, dial(&it.gateway, &administrator()).await).await;
    let revision = get(&it.operator, "revisions/2").await.body;
    assert_eq!(revision["author"], "operator (https://id.example.com)");
}

#[tokio::test]
async fn every_rpc_answers_over_the_socket_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let it = stored_as(file_with("acme").set("/server/admin_socket", path.display().to_string())).await;
    walk(&it, client(socket(&path).await, None)).await;
    let author = get(&it.operator, "revisions/2").await.body["author"].clone();
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).unwrap());
    assert_eq!(author, format!("unix:{uid}"));
}

#[tokio::test]
async fn a_write_that_is_tried_out_says_what_the_write_does_and_leaves_everything() {
    let it = stored().await;
    let mut client = dial(&it.gateway, &administrator()).await;
    let spec = json!({ "labels": { "plan": "pro" } });
    let request = tenant("globex", &spec, Some(0));
    let tried = client.put_object(wire::PutObjectRequest { dry_run: true, ..request.clone() }).await;
    let tried = tried.unwrap().into_inner().written.unwrap();
    assert_eq!((tried.revision, tried.dry_run, tried.active), (None, true, false));
    assert_eq!(head(&it.operator).await, 1);
    let done = client.put_object(request).await.unwrap().into_inner().written.unwrap();
    assert_eq!((done.revision, done.dry_run, done.active), (Some(2), false, true));
    let same = |written: wire::WriteResult| (written.changes, written.effects, written.unvalidated);
    assert_eq!(same(tried), same(done));
}

#[tokio::test]
async fn what_is_wrong_is_said_with_its_code_and_its_place() {
    let it = stored().await;
    let mut client = dial(&it.gateway, &administrator()).await;
    let at = |status: &Status| violations(status)[0]["pointer"].clone();
    // A missing version doesn't count as 0.
    let absent = assert_code(client.put_object(tenant("x", &json!({}), None)).await, Code::PayloadInvalid);
    assert_eq!(at(&absent), "/expected_version");
    assert!(absent.message().starts_with("`expected_version` must be there"), "{absent:?}");
    let request = wire::PutObjectRequest { reason: "x".repeat(501), ..tenant("x", &json!({}), Some(0)) };
    assert_eq!(at(&assert_code(client.put_object(request).await, Code::PayloadInvalid)), "/reason");
    let request = wire::PutObjectRequest { kind: 0, ..tenant("x", &json!({}), Some(0)) };
    assert_eq!(at(&assert_code(client.put_object(request).await, Code::PayloadInvalid)), "/kind");
    let twice = wire::PutObjectRequest {
        spec_json: r#"{"labels":{"a":"1","a":"2"}}"#.into(),
        ..tenant("x", &json!({}), Some(0))
    };
    assert_eq!(at(&assert_code(client.put_object(twice).await, Code::PayloadInvalid)), "/labels/a");
    for spec in ["", "[]", "{", "\u{feff}{}"] {
        let request = wire::PutObjectRequest { spec_json: spec.into(), ..tenant("x", &json!({}), Some(0)) };
        assert_code(client.put_object(request).await, Code::PayloadInvalid);
    }
    let labels = tenant("x", &json!({ "labels": 1 }), Some(0));
    assert_eq!(at(&assert_code(client.put_object(labels).await, Code::ConfigInvalid)), "/labels");
    assert_code(client.put_object(tenant("acme", &json!({}), Some(0))).await, Code::Conflict);
    for name in ["", "a\0b", &"x".repeat(257)] {
        let refused = client.put_object(tenant(name, &json!({}), Some(0))).await;
        let said = refused.as_ref().expect_err("no tenant has such an id").message().to_owned();
        assert_eq!(said, "The id of a tenant must have 1 to 256 bytes, and no control characters");
        assert_code(refused, Code::PayloadInvalid);
    }
    let request = wire::DeleteObjectRequest {
        kind: Kind::Tenant.into(),
        name: "acme".into(),
        expected_version: Some(1),
        force: true,
        ..wire::DeleteObjectRequest::default()
    };
    assert_eq!(at(&assert_code(client.delete_object(request).await, Code::PayloadInvalid)), "/force");
    let list = |change: fn(&mut wire::ListObjectsRequest)| {
        let mut request =
            wire::ListObjectsRequest { kind: Kind::Tenant.into(), ..wire::ListObjectsRequest::default() };
        change(&mut request);
        request
    };
    for (request, place) in [
        (list(|list| list.page_size = Some(0)), "/page_size"),
        (list(|list| list.page_size = Some(501)), "/page_size"),
        (list(|list| list.page_token = "nonsense".into()), "/page_token"),
        (list(|list| list.owner = 7), "/owner"),
        (list(|list| list.state = Some("ready".into())), "/state"),
        (list(|list| list.plugin = Some("own".into())), "/plugin"),
    ] {
        let refused = assert_code(client.list_objects(request).await, Code::PayloadInvalid);
        assert_eq!(at(&refused), place);
    }
    assert_code(client.get_revision(wire::GetRevisionRequest { number: 9 }).await, Code::NotFound);
    let point = wire::GetPlanRequest { tenant: "acme".into(), point: 9, hook: None };
    assert_eq!(at(&assert_code(client.get_plan(point).await, Code::PayloadInvalid)), "/point");
    assert_eq!(head(&it.operator).await, 1, "none of it was written");
}

#[tokio::test]
async fn without_a_store_everything_is_shown_and_nothing_written() {
    let gateway = file_with("acme").start().await;
    let mut client = dial(&gateway, &administrator()).await;
    let request = wire::GetObjectRequest { kind: Kind::Tenant.into(), name: "acme".into() };
    let object = client.get_object(request).await.unwrap().into_inner().object.unwrap();
    assert_eq!((object.owner(), object.version), (Owner::File, None));
    assert_code(client.put_object(tenant("x", &json!({}), Some(0))).await, Code::Conflict);
}

#[tokio::test]
async fn a_store_that_is_away_is_unavailable_and_says_when_to_come_back() {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let (url, folder) = (cluster.database().await, tempfile::tempdir().unwrap());
    let gateway = file_with("acme").store(&url, folder.path()).start().await;
    let mut client = dial(&gateway, &administrator()).await;
    cluster.stop();
    let refused = client.put_object(tenant("x", &json!({}), Some(0))).await;
    let status = assert_code(refused, Code::StoreUnavailable);
    assert!(status.get_details_retry_info().is_some_and(|info| info.retry_delay.is_some()), "{status:?}");
}

#[tokio::test]
async fn messages_are_bounded_and_whole_and_methods_are_known() {
    let it = stored().await;
    let mut client = dial(&it.gateway, &administrator()).await;
    let large = json!({ "labels": { "a": "x".repeat(1 << 20) } });
    assert_code(client.put_object(tenant("x", &large, Some(0))).await, Code::PayloadTooLarge);
    let apply = |bytes: usize| wire::ApplyRequest {
        document_json: text(&json!({ "tenants": [{ "id": "x", "labels": { "a": "x".repeat(bytes) } }] })),
        dry_run: true,
        ..wire::ApplyRequest::default()
    };
    let fits = client.apply(apply(2 << 20)).await;
    let code = fits.err().and_then(|status| reason(&status).1);
    assert_ne!(code, Some(Code::PayloadTooLarge.to_string()));
    assert_code(client.apply(apply(16 << 20)).await, Code::PayloadTooLarge);

    let address = it.gateway.admin_addr().unwrap();
    let good = frame(&tenant("raw", &json!({}), Some(0)));
    let mut compressed = good.clone();
    compressed[0] = 1;
    let service = PUT.trim_end_matches("PutObject");
    for (path, body, code) in [
        (PUT.to_owned(), compressed, Code::ContentType),
        (PUT.to_owned(), frame_of(&[0xff]), Code::PayloadInvalid),
        (PUT.to_owned(), Vec::new(), Code::PayloadInvalid),
        (PUT.to_owned(), [good.clone(), good.clone()].concat(), Code::PayloadInvalid),
        (format!("{service}Nothing"), good.clone(), Code::NotFound),
        (
            "/hookgate.gateway.v1.ExtensionPointService/BeforeToolCall".to_owned(),
            good.clone(),
            Code::NotFound,
        ),
    ] {
        let status = send_grpc(grpc_request(address, &path, &administrator(), body)).await.status();
        // An unknown method is UNIMPLEMENTED, as on the data port (docs/decisions/0002).
        let expected = if code == Code::NotFound { tonic::Code::Unimplemented } else { code.grpc() };
        assert_eq!(reason(&status), (expected, Some(code.to_string())), "{path}: {status:?}");
    }
    let json = grpc_request(address, PUT, &administrator(), good.clone());
    let content_type = (http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc+json"));
    let other = http::HeaderMap::from_iter([content_type]);
    let json = send_grpc(json.headers(other)).await.status();
    assert_eq!(reason(&json).1, Some(Code::ContentType.to_string()));
    assert_eq!(head(&it.operator).await, 1);
    let taken = send_grpc(grpc_request(address, PUT, &administrator(), good)).await;
    assert!(!taken.body.is_empty(), "{taken:?}");
    assert_eq!(head(&it.operator).await, 2);
    assert_no_panic(&it.gateway);
}

/// The services that the port lists for this token.
async fn listed(channel: Channel, token: Option<&str>) -> Result<Vec<String>, Status> {
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request };
    let mut reflection = ServerReflectionClient::with_interceptor(channel, Bearer::new(token));
    let answers = reflection.server_reflection_info(tokio_stream::iter([request])).await?;
    let answer = answers.into_inner().message().await?.expect("one answer");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("not a list of services: {answer:?}");
    };
    Ok(list.service.into_iter().map(|service| service.name).collect())
}

#[tokio::test]
async fn health_and_reflection_need_a_token_and_list_this_ports_services() {
    let gateway: Gateway = file_with("acme").start().await;
    let (channel, token) = (channel(&gateway).await, administrator());
    let names = listed(channel.clone(), Some(&token)).await.unwrap();
    assert!(names.iter().any(|name| name == "hookgate.admin.v1.AdminService"), "{names:?}");
    assert!(
        names.iter().all(|name| name.starts_with("grpc.") || name.ends_with(".AdminService")),
        "{names:?}"
    );
    assert_code(listed(channel.clone(), None).await.map(Response::new), Code::TokenMissing);
    let data = gateway.grpc_without_token().await.channel;
    let names = listed(data, None).await.unwrap();
    assert!(!names.iter().any(|name| name.contains("admin")), "the data port has none of it: {names:?}");

    let everything = || HealthCheckRequest { service: String::new() };
    let mut health = HealthClient::with_interceptor(channel.clone(), Bearer::new(Some(&token)));
    assert_eq!(health.check(everything()).await.unwrap().into_inner().status(), ServingStatus::Serving);
    assert_code(HealthClient::new(channel).check(everything()).await, Code::TokenMissing);
}
