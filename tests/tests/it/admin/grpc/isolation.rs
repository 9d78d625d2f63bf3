//! Tests isolation over gRPC (G34): a caller confined to one tenant sends any request to any rpc. No answer
//! contains a byte of another tenant, and guessed names can't be told from missing ones. Shares its world
//! with the test over HTTP.

use std::{cell::Cell, net::SocketAddr};

use hookgate::core::error::Code;
use hookgate_proto::{
    SOURCES,
    admin::v1::{self as wire, Kind, stream_events_request::Since},
    types::v1::ExtensionPoint,
};
use hookgate_tests::agent::reason;
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    admin::{
        grpc::support::text,
        registry::{
            isolation::{CANARY, GUESSES, OWN, World, world},
            support::{administrator, get},
        },
    },
    edge::support::{RawAnswer, assert_no_panic, frame, grpc_request, send_grpc},
};

/// One request.
#[derive(Debug, Clone)]
struct RpcCase {
    rpc: &'static str,
    kind: Kind,
    names: [&'static str; 2],
    number: u64,
    page_token: String,
    flag: bool,
    token: usize,
}

/// Every rpc with a function that encodes its request.
type RequestEncoder = fn(&RpcCase) -> Vec<u8>;
const RPCS: &[(&str, RequestEncoder)] = &[
    ("GetStatus", |_| frame(&wire::GetStatusRequest {})),
    ("ListObjects", list),
    ("GetObject", |asked| {
        frame(&wire::GetObjectRequest { kind: asked.kind.into(), name: asked.names[0].into() })
    }),
    ("PutObject", |asked| {
        frame(&wire::PutObjectRequest {
            kind: asked.kind.into(),
            name: asked.names[0].into(),
            spec_json: text(&json!({ "labels": { "a": "b" } })),
            expected_version: Some(asked.number),
            reason: String::new(),
            dry_run: asked.flag,
        })
    }),
    ("PatchObject", |asked| {
        frame(&wire::PatchObjectRequest {
            kind: asked.kind.into(),
            name: asked.names[0].into(),
            patch_json: text(&json!({ "enabled": false })),
            expected_version: Some(asked.number),
            reason: String::new(),
            dry_run: asked.flag,
        })
    }),
    ("DeleteObject", |asked| {
        frame(&wire::DeleteObjectRequest {
            kind: asked.kind.into(),
            name: asked.names[0].into(),
            expected_version: Some(asked.number),
            dry_run: asked.flag,
            ..wire::DeleteObjectRequest::default()
        })
    }),
    ("EnablePlugin", |asked| {
        frame(&wire::EnablePluginRequest { name: asked.names[0].into(), ..Default::default() })
    }),
    ("DisablePlugin", |asked| {
        frame(&wire::DisablePluginRequest { name: asked.names[0].into(), ..Default::default() })
    }),
    ("Apply", |asked| {
        let document_json = text(&json!({ "remove": [{ "kind": "tenant", "name": asked.names[0] }] }));
        frame(&wire::ApplyRequest { document_json, dry_run: asked.flag, ..Default::default() })
    }),
    ("ListRevisions", |asked| {
        frame(&wire::ListRevisionsRequest { page_size: None, page_token: asked.page_token.clone() })
    }),
    ("GetRevision", |asked| frame(&wire::GetRevisionRequest { number: asked.number })),
    ("DiffRevisions", |asked| frame(&wire::DiffRevisionsRequest { from: Some(asked.number), to: None })),
    ("RollBack", |asked| {
        let (number, dry_run) = (asked.number, asked.flag);
        frame(&wire::RollBackRequest { number: Some(number), dry_run, ..Default::default() })
    }),
    ("GetPlan", |asked| frame(&wire::GetPlanRequest { tenant: asked.names[0].into(), point: 0, hook: None })),
    ("Explain", |asked| {
        let point =
            if asked.flag { ExtensionPoint::BeforeLlmRequest } else { ExtensionPoint::BeforeToolCall };
        frame(&wire::ExplainRequest {
            tenant: asked.names[0].into(),
            point: point.into(),
            labels: [("plan".to_owned(), "canary".to_owned())].into(),
            ..wire::ExplainRequest::default()
        })
    }),
    ("ApprovePlugin", |asked| {
        let approval_json = text(&json!({ "accepted": { "points": {}, "capabilities": [] } }));
        let name = asked.names[0].into();
        frame(&wire::ApprovePluginRequest { name, approval_json, dry_run: asked.flag, ..Default::default() })
    }),
    ("PutBypass", |asked| {
        let [binding, tenant] = asked.names.map(str::to_owned);
        let (for_ms, reason, dry_run) = (60_000, "why".to_owned(), asked.flag);
        frame(&wire::PutBypassRequest { binding, tenant, for_ms, reason, dry_run })
    }),
    ("DeleteBypass", |asked| {
        let [binding, tenant] = asked.names.map(str::to_owned);
        frame(&wire::DeleteBypassRequest { binding, tenant, ..Default::default() })
    }),
    ("Reload", |_| frame(&wire::ReloadRequest::default())),
    ("DescribePlugin", |asked| {
        frame(&wire::DescribePluginRequest { name: asked.names[0].into(), reason: String::new() })
    }),
    ("DrainPlugin", |asked| {
        frame(&wire::DrainPluginRequest { name: asked.names[0].into(), ..Default::default() })
    }),
    ("CallPlugin", |asked| {
        frame(&wire::CallPluginRequest {
            name: asked.names[0].into(),
            point: ExtensionPoint::BeforeLlmRequest.into(),
            payload_json: text(&json!({ "text": "hello" })),
            tenant: Some(asked.names[1].into()),
            ..wire::CallPluginRequest::default()
        })
    }),
    ("DeletePluginData", |asked| {
        frame(&wire::DeletePluginDataRequest { name: asked.names[0].into(), reason: String::new() })
    }),
    ("CheckUpstreams", |asked| {
        let names = if asked.flag { vec![asked.names[0].into()] } else { Vec::new() };
        frame(&wire::CheckUpstreamsRequest { names, reason: String::new() })
    }),
    ("StreamEvents", |asked| {
        frame(&wire::StreamEventsRequest {
            names: if asked.flag { vec!["registry.*".into(), "plugin.*".into()] } else { Vec::new() },
            tenant: (asked.names[0] != OWN).then(|| asked.names[0].into()),
            since: Some(Since::AgoMs(600_000)),
            ..wire::StreamEventsRequest::default()
        })
    }),
];

fn list(asked: &RpcCase) -> Vec<u8> {
    let [first, second] = asked.names.map(|name| asked.flag.then(|| name.to_owned()));
    let mut request = wire::ListObjectsRequest {
        kind: asked.kind.into(),
        page_size: Some(1),
        page_token: asked.page_token.clone(),
        ..wire::ListObjectsRequest::default()
    };
    match asked.kind {
        Kind::Tenant => request.labels = first.map(|name| ("plan".to_owned(), name)).into_iter().collect(),
        Kind::Binding => (request.plugin, request.tenant) = (first, second),
        Kind::Bypass => (request.binding, request.tenant) = (first, second),
        Kind::Model => request.upstream = first,
        Kind::Plugin | Kind::Upstream | Kind::Unspecified => {}
    }
    frame(&request)
}

/// Whether the request is about the caller's own tenant, or lists what it may see.
fn is_own(asked: &RpcCase) -> bool {
    match asked.rpc {
        "ListObjects" => asked.kind == Kind::Binding,
        "GetObject" => {
            matches!((asked.kind, asked.names[0]), (Kind::Tenant, OWN) | (Kind::Binding, "of-acme"))
        }
        "GetPlan" | "Explain" => asked.names[0] == OWN,
        "StreamEvents" => true,
        _ => false,
    }
}

/// Whether an unrestricted caller may send the same request without changing anything.
fn is_reading(asked: &RpcCase) -> bool {
    ["Get", "List", "Diff", "Explain", "Stream"].iter().any(|begin| asked.rpc.starts_with(begin))
}

async fn send(address: SocketAddr, token: &str, asked: &RpcCase) -> RawAnswer {
    let made = RPCS.iter().find(|(rpc, _)| *rpc == asked.rpc).expect("it is one of them").1;
    let path = format!("/hookgate.admin.v1.AdminService/{}", asked.rpc);
    send_grpc(grpc_request(address, &path, token, made(asked))).await
}

/// Everything in an answer, including the error's details.
fn said(answer: &RawAnswer) -> String {
    let status = tonic::Status::from_header_map(&answer.headers);
    let details = status.map(|status| format!("{status:?}{}", String::from_utf8_lossy(status.details())));
    format!("{:?}{}{}", answer.headers, String::from_utf8_lossy(&answer.body), details.unwrap_or_default())
}

async fn check(world: &World, address: SocketAddr, asked: &RpcCase) {
    let answer = send(address, &world.tokens[asked.token], asked).await;
    let text = said(&answer);
    assert!(!text.contains(CANARY) && !text.contains("globex"), "{asked:?}: {text}");
    if !is_own(asked) {
        let status = answer.status();
        let code = (Code::NotFound.grpc(), Some(Code::NotFound.to_string()));
        assert_eq!(reason(&status), code, "{asked:?}: {status:?}");
        assert_eq!(status.message(), "There is nothing here that the token may see", "{asked:?}");
    }
}

fn requests(cursors: &[String]) -> impl Strategy<Value = RpcCase> + use<> {
    let kinds =
        select(&[Kind::Plugin, Kind::Tenant, Kind::Binding, Kind::Upstream, Kind::Model, Kind::Bypass][..]);
    let names = [select(GUESSES), select(GUESSES)];
    let number = prop_oneof![4 => 0..4_u64, 1 => Just(u64::MAX)];
    let place = prop_oneof![1 => Just(String::new()), 1 => select(cursors.to_vec())];
    let which = (select(RPCS), kinds, names, number);
    (which, place, any::<bool>(), 0..3_usize).prop_map(
        |((rpc, kind, names, number), page_token, flag, token)| RpcCase {
            rpc: rpc.0,
            kind,
            names,
            number,
            page_token,
            flag,
            token,
        },
    )
}

#[test]
fn every_rpc_is_asked() {
    let (_, source) = SOURCES.iter().find(|(path, _)| path.ends_with("admin.proto")).expect("it is there");
    let rpcs = source.lines().filter_map(|line| Some(line.strip_prefix("  rpc ")?.split_once('(')?.0));
    let asked: Vec<_> = RPCS.iter().map(|(rpc, _)| *rpc).collect();
    assert_eq!(rpcs.collect::<Vec<_>>(), asked);
}

#[test]
fn no_byte_of_a_tenant_is_in_any_answer_over_grpc_to_an_operator_of_another() {
    let runtime = Runtime::new().expect("a runtime needs nothing but threads");
    let world = runtime.block_on(world());
    let address = world.it.gateway.admin_addr().expect("the admin port is open");
    let hidden = Cell::new(0);
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    let operator = administrator();
    let tried = TestRunner::new(config).run(&requests(&world.cursors), |asked| {
        runtime.block_on(check(&world, address, &asked));
        // The same as an unrestricted caller.
        if is_reading(&asked) {
            let all = said(&runtime.block_on(send(address, &operator, &asked)));
            hidden.set(hidden.get() + usize::from(all.contains(CANARY)));
        }
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
    assert_ne!(hidden.get(), 0, "the unrestricted caller saw nothing of the other tenant either");
    runtime.block_on(async {
        let revision = get(&world.it.operator, "tenants?limit=1").await.body["revision"].clone();
        assert_eq!(revision, 3, "nothing was written");
        assert_no_panic(&world.it.gateway);
        drop(world);
    });
}
