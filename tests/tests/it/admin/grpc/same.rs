//! Property test: gRPC and HTTP behave the same. The same requests go to one gateway over HTTP and to
//! another over gRPC; both give the same answers and end in the same state.

use hookgate::core::error::Code;
use hookgate_proto::{
    admin::v1::{self as wire, Kind},
    types::v1::ExtensionPoint,
};
use hookgate_tests::agent::{HttpAnswer, reason};
use http::Method;
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::{Response, Status};

use crate::admin::{
    grpc::support::{Client, changes, cursor, dial, object, parsed, revision, text, violations, written},
    registry::support::{Stored, administrator, ask, get, stored},
};

const KINDS: [Kind; 3] = [Kind::Plugin, Kind::Tenant, Kind::Binding];
const NAMES: [&str; 5] = ["acme", "globex", "content-policy", "own", "a/b ü"];

/// A write's precondition.
#[derive(Debug, Clone, Copy)]
enum Expects {
    Right,
    None,
    Wrong,
}

#[derive(Debug, Clone)]
enum Act {
    Put(usize, usize, usize, Expects),
    Patch(usize, usize, usize, Expects),
    Delete(usize, usize, bool, Expects),
    Switch(usize, bool, Option<Expects>),
    Apply(usize, bool),
    RollBack(u64, Option<u64>),
    List(usize, u32, usize),
    Get(usize, usize),
    Revisions(u32),
    Revision(u64),
    Difference(u64, Option<u64>),
    Plan(usize),
    Explain(usize, Option<u64>),
}

fn spec(kind: usize, which: usize) -> Value {
    let specs = match KINDS[kind] {
        Kind::Plugin => [
            json!({ "builtin": "content-policy", "config": { "max_input_chars": 10 } }),
            json!({ "builtin": "content-policy", "config": { "max_input_chars": "***" } }),
            json!({ "builtin": "content-policy", "config": { "max_input_chars": "many" } }),
            json!({ "enabled": "yes" }),
        ],
        Kind::Tenant => [
            json!({ "labels": { "plan": "pro" } }),
            json!({ "enabled": false }),
            json!({ "id": "other" }),
            json!({ "nonsense": 1, "labels": [] }),
        ],
        _ => [
            json!({ "plugin": "content-policy", "tenant": "acme", "priority": 20 }),
            json!({ "plugin": "own", "tenant": "*", "priority": 30 }),
            json!({ "plugin": "content-policy", "tenant": "globex", "priority": 1, "mode": "advise" }),
            json!({ "priority": 12345678901234567890_u64 }),
        ],
    };
    specs[which].clone()
}

fn document(which: usize) -> Value {
    match which {
        0 => json!({
            "plugins": [{ "name": "own", "builtin": "content-policy" }], "tenants": [{ "id": "globex" }],
            "bindings": [{ "plugin": "own", "tenant": "globex", "priority": 5 }],
        }),
        1 => json!({ "remove": [{ "kind": "plugin", "name": "own" }] }),
        2 => json!({ "tenants": [{ "id": "initech" }, { "id": "initech" }], "bindings": [{}] }),
        3 => {
            json!({ "tenants": [{ "id": "globex", "enabled": false }], "versions": { "tenants": { "globex": 0 } } })
        }
        4 => json!({ "unknown": [] }),
        _ => json!({ "bindings": [{ "name": "b", "plugin": "nobody", "tenant": "*", "priority": 7 }] }),
    }
}

fn acts() -> impl Strategy<Value = Vec<(Act, bool)>> {
    let (kind, name) = (0..KINDS.len(), 0..NAMES.len());
    let expects = prop_oneof![6 => Just(Expects::Right), 2 => Just(Expects::None), 1 => Just(Expects::Wrong)];
    let object = (kind.clone(), name.clone(), 0..4_usize, expects.clone());
    let number = 0..12_u64;
    let act = prop_oneof![
        8 => object.clone().prop_map(|(k, n, s, e)| Act::Put(k, n, s, e)),
        3 => object.prop_map(|(k, n, s, e)| Act::Patch(k, n, s, e)),
        3 => (kind.clone(), name.clone(), any::<bool>(), expects.clone())
            .prop_map(|(k, n, f, e)| Act::Delete(k, n, f, e)),
        2 => (name.clone(), any::<bool>(), prop::option::of(expects)).prop_map(|(n, on, e)| Act::Switch(n, on, e)),
        4 => (0..6_usize, any::<bool>()).prop_map(|(d, f)| Act::Apply(d, f)),
        2 => (number.clone(), prop::option::of(number.clone())).prop_map(|(to, at)| Act::RollBack(to, at)),
        3 => (kind.clone(), 1..4_u32, 0..5_usize).prop_map(|(k, m, f)| Act::List(k, m, f)),
        2 => (kind, name.clone()).prop_map(|(k, n)| Act::Get(k, n)),
        1 => (1..4_u32).prop_map(Act::Revisions),
        1 => number.clone().prop_map(Act::Revision),
        2 => (number.clone(), prop::option::of(number)).prop_map(|(from, to)| Act::Difference(from, to)),
        1 => name.clone().prop_map(Act::Plan),
        1 => (name, prop::option::of(0..70_000_u64)).prop_map(|(n, t)| Act::Explain(n, t)),
    ];
    prop::collection::vec((act, prop::bool::weighted(0.2)), 1..40)
}

/// Two gateways: one is called over HTTP, the other over gRPC.
struct World {
    http: Stored,
    grpc: Stored,
    client: Client,
}

fn list(kind: usize) -> &'static str {
    ["plugins", "tenants", "bindings"][kind]
}

fn path(kind: usize, name: usize) -> String {
    let name = percent_encoding_of(NAMES[name]);
    format!("{}/{name}", list(kind))
}

fn percent_encoding_of(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || byte == b'-' {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// An HTTP answer without what always differs.
pub(crate) fn of_http(mut answer: HttpAnswer) -> Value {
    if answer.status >= 400 {
        let errors = answer.body.get("errors").cloned().unwrap_or_else(|| json!([]));
        return json!({ "code": answer.body["code"], "detail": answer.body["detail"], "errors": errors });
    }
    comparable(&mut answer.body);
    answer.body
}

/// A gRPC answer without what always differs.
pub(crate) fn of_grpc<M>(answer: Result<Response<M>, Status>, shown: impl FnOnce(M) -> Value) -> Value {
    match answer {
        Ok(answer) => {
            let mut shown = shown(answer.into_inner());
            comparable(&mut shown);
            shown
        }
        Err(status) => {
            let (grpc, code) = reason(&status);
            let code = code.unwrap_or_else(|| panic!("not one of ours: {status:?}"));
            assert_eq!(Code::from_name(&code).map(Code::grpc), Some(grpc), "{status:?}");
            json!({ "code": code, "detail": status.message(), "errors": violations(&status) })
        }
    }
}

/// Removes times and the path of the file.
fn comparable(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("at");
            if members.get("author").is_some_and(|author| author == "file") {
                members.remove("reason");
            }
            members.values_mut().for_each(comparable);
        }
        Value::Array(entries) => entries.iter_mut().for_each(comparable),
        _ => {}
    }
}

impl World {
    async fn new() -> Self {
        let (http, grpc) = (stored().await, stored().await);
        let client = dial(&grpc.gateway, &administrator()).await;
        World { http, grpc, client }
    }

    fn client(&self) -> Client {
        self.client.clone()
    }

    async fn expected(&self, kind: usize, name: usize, expects: Expects) -> u64 {
        let current = get(&self.http.operator, &path(kind, name)).await.body["version"].as_u64();
        match expects {
            Expects::Right => current.unwrap_or(0),
            Expects::None => 0,
            Expects::Wrong => 99,
        }
    }

    async fn run(&self, act: &Act, dry_run: bool) {
        let (over_http, over_grpc) = match act {
            Act::Put(..) | Act::Patch(..) | Act::Delete(..) | Act::Switch(..) => {
                self.write_one(act, dry_run).await
            }
            Act::Apply(..) | Act::RollBack(..) => self.write_many(act, dry_run).await,
            _ => self.read(act).await,
        };
        assert_eq!(over_grpc, over_http, "{act:?}, dry run: {dry_run}");
    }

    async fn over_http(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        of_http(ask(&self.http.operator, method, path, body).await)
    }

    async fn write_one(&self, act: &Act, dry_run: bool) -> (Value, Value) {
        let why = format!("dry_run={dry_run}&reason=why");
        match *act {
            Act::Put(kind, name, which, expects) => {
                let expected = self.expected(kind, name, expects).await;
                let (at, spec) = (path(kind, name), spec(kind, which));
                let at = format!("{at}?expected_version={expected}&{why}");
                let request = wire::PutObjectRequest {
                    kind: KINDS[kind].into(),
                    name: NAMES[name].into(),
                    spec_json: text(&spec),
                    expected_version: Some(expected),
                    reason: "why".into(),
                    dry_run,
                };
                let told = self.client().put_object(request).await;
                (
                    self.over_http(Method::PUT, &at, Some(&spec)).await,
                    of_grpc(told, |told| written(told.written)),
                )
            }
            Act::Patch(kind, name, which, expects) => {
                let expected = self.expected(kind, name, expects).await;
                let (at, spec) = (path(kind, name), spec(kind, which));
                let at = format!("{at}?expected_version={expected}&{why}");
                let request = wire::PatchObjectRequest {
                    kind: KINDS[kind].into(),
                    name: NAMES[name].into(),
                    patch_json: text(&spec),
                    expected_version: Some(expected),
                    reason: "why".into(),
                    dry_run,
                };
                let told = self.client().patch_object(request).await;
                let over_http = self.over_http(Method::PATCH, &at, Some(&spec)).await;
                (over_http, of_grpc(told, |told| written(told.written)))
            }
            Act::Delete(kind, name, force, expects) => {
                let force = force && KINDS[kind] == Kind::Plugin;
                let expected = self.expected(kind, name, expects).await;
                let forced = if force { "&force=true" } else { "" };
                let at = format!("{}?expected_version={expected}&{why}{forced}", path(kind, name));
                let request = wire::DeleteObjectRequest {
                    kind: KINDS[kind].into(),
                    name: NAMES[name].into(),
                    expected_version: Some(expected),
                    reason: "why".into(),
                    dry_run,
                    force,
                };
                let told = self.client().delete_object(request).await;
                (self.over_http(Method::DELETE, &at, None).await, of_grpc(told, |told| written(told.written)))
            }
            Act::Switch(name, on, expects) => self.switch(name, on, expects, dry_run).await,
            _ => unreachable!("it writes one object"),
        }
    }

    async fn switch(&self, name: usize, on: bool, expects: Option<Expects>, dry_run: bool) -> (Value, Value) {
        let expected = match expects {
            Some(expects) => Some(self.expected(0, name, expects).await),
            None => None,
        };
        let (expected_version, reason, plugin) = (expected, "why".to_owned(), NAMES[name].to_owned());
        let told = if on {
            let request = wire::EnablePluginRequest { name: plugin, expected_version, reason, dry_run };
            of_grpc(self.client().enable_plugin(request).await, |told| written(told.written))
        } else {
            let request = wire::DisablePluginRequest { name: plugin, expected_version, reason, dry_run };
            of_grpc(self.client().disable_plugin(request).await, |told| written(told.written))
        };
        let expected = expected.map_or(String::new(), |version| format!("&expected_version={version}"));
        let how = if on { "enable" } else { "disable" };
        let at = format!("{}/{how}?reason=why&dry_run={dry_run}{expected}", path(0, name));
        (self.over_http(Method::POST, &at, None).await, told)
    }

    async fn write_many(&self, act: &Act, dry_run: bool) -> (Value, Value) {
        let why = format!("dry_run={dry_run}&reason=why");
        match *act {
            Act::Apply(which, force) => {
                let document = document(which);
                let request = wire::ApplyRequest {
                    document_json: text(&document),
                    reason: "why".into(),
                    dry_run,
                    force,
                    expected_revision: None,
                };
                let told = of_grpc(self.client().apply(request).await, |told| written(told.written));
                let at = format!("apply?{why}&force={force}");
                (self.over_http(Method::POST, &at, Some(&document)).await, told)
            }
            Act::RollBack(number, expected_revision) => {
                let (at, reason) = (Some(number), "why".into());
                let request = wire::RollBackRequest { number: at, reason, dry_run, expected_revision };
                let told = of_grpc(self.client().roll_back(request).await, |told| written(told.written));
                let upon = expected_revision.map_or(String::new(), |at| format!("&expected_revision={at}"));
                let at = format!("revisions/{number}/rollback?{why}{upon}");
                (self.over_http(Method::POST, &at, None).await, told)
            }
            _ => unreachable!("it writes several objects"),
        }
    }

    async fn read(&self, act: &Act) -> (Value, Value) {
        let (at, told) = match *act {
            Act::List(kind, most, filter) => return self.list(kind, most, filter).await,
            Act::Get(kind, name) => {
                let request = wire::GetObjectRequest { kind: KINDS[kind].into(), name: NAMES[name].into() };
                let told = self.client().get_object(request).await;
                (path(kind, name), of_grpc(told, |told| object(&told.object.expect("one"))))
            }
            Act::Revisions(most) => {
                let request = wire::ListRevisionsRequest {
                    page_size: Some(most),
                    ..wire::ListRevisionsRequest::default()
                };
                let told = of_grpc(self.client().list_revisions(request).await, |told| {
                    let revisions: Vec<_> = told.revisions.iter().map(|one| revision(one, None)).collect();
                    json!({ "revisions": revisions, "next_cursor": cursor(&told.next_page_token) })
                });
                (format!("revisions?limit={most}"), told)
            }
            Act::Revision(number) => {
                let told = self.client().get_revision(wire::GetRevisionRequest { number }).await;
                let told = of_grpc(told, |told| {
                    revision(&told.revision.expect("one"), Some(changes(&told.changes)))
                });
                (format!("revisions/{number}"), told)
            }
            Act::Difference(from, to) => {
                let request = wire::DiffRevisionsRequest { from: Some(from), to };
                let told = self.client().diff_revisions(request).await;
                let told = of_grpc(
                    told,
                    |told| json!({ "from": told.from, "to": told.to, "changes": changes(&told.changes) }),
                );
                let to = to.map_or(String::new(), |to| format!("?to={to}"));
                (format!("revisions/{from}/diff{to}"), told)
            }
            Act::Plan(name) => {
                let request = wire::GetPlanRequest { tenant: NAMES[name].into(), point: 0, hook: None };
                let told = of_grpc(self.client().get_plan(request).await, |told| parsed(&told.plan_json));
                (format!("{}/plan", path(1, name)), told)
            }
            Act::Explain(name, timeout_ms) => return self.explain(name, timeout_ms).await,
            _ => unreachable!("it reads"),
        };
        (self.over_http(Method::GET, &at, None).await, told)
    }

    async fn explain(&self, name: usize, timeout_ms: Option<u64>) -> (Value, Value) {
        let request = wire::ExplainRequest {
            tenant: NAMES[name].into(),
            point: ExtensionPoint::BeforeLlmRequest.into(),
            text: Some("a text".into()),
            labels: [("k".to_owned(), "v".to_owned())].into(),
            timeout_ms,
            ..wire::ExplainRequest::default()
        };
        let told = of_grpc(self.client().explain(request).await, |told| parsed(&told.explanation_json));
        let waits = timeout_ms.map_or(String::new(), |millis| format!("&timeout_ms={millis}"));
        let at = format!("{}/explain?point=before_llm_request&text=a+text&label.k=v{waits}", path(1, name));
        let mut over_http = self.over_http(Method::GET, &at, None).await;
        // The only error whose words differ: a query has no pointers.
        if over_http["code"] == "PAYLOAD_INVALID" {
            assert_eq!(over_http["detail"], "`timeout_ms` in the query must be 1 to 60000");
            let message = "`timeout_ms` must be 1 to 60000";
            over_http["detail"] = message.into();
            over_http["errors"] = json!([{ "pointer": "/timeout_ms", "message": message }]);
        }
        (over_http, told)
    }

    /// All pages.
    async fn list(&self, kind: usize, most: u32, filter: usize) -> (Value, Value) {
        let mut request = wire::ListObjectsRequest {
            kind: KINDS[kind].into(),
            page_size: Some(most),
            ..wire::ListObjectsRequest::default()
        };
        let query = match (KINDS[kind], filter) {
            (_, 1) => {
                request.owner = wire::Owner::Api.into();
                "&owner=api"
            }
            (Kind::Plugin, 2) => {
                request.state = Some("ready".into());
                "&state=ready"
            }
            (Kind::Tenant, 2) => {
                request.enabled = Some(true);
                "&enabled=true"
            }
            (Kind::Tenant, 3) => {
                request.labels = [("plan".to_owned(), "pro".to_owned())].into();
                "&label.plan=pro"
            }
            (Kind::Binding, 2) => {
                request.plugin = Some("content-policy".into());
                "&plugin=content-policy"
            }
            (Kind::Binding, 3) => {
                request.tenant = Some("acme".into());
                "&tenant=acme"
            }
            _ => "",
        };
        let (mut over_http, mut over_grpc) = (Vec::new(), Vec::new());
        loop {
            let next = match &*request.page_token {
                "" => String::new(),
                token => format!("&cursor={token}"),
            };
            let at = format!("{}?limit={most}{query}{next}", list(kind));
            over_http.push(self.over_http(Method::GET, &at, None).await);
            let told = self.client().list_objects(request.clone()).await;
            over_grpc.push(of_grpc(told, |told| {
                request.page_token.clone_from(&told.next_page_token);
                let objects: Vec<_> = told.objects.iter().map(object).collect();
                let next = cursor(&told.next_page_token);
                json!({ list(kind): objects, "next_cursor": next, "revision": told.revision })
            }));
            if request.page_token.is_empty() {
                return (over_http.into(), over_grpc.into());
            }
        }
    }

    /// Compares the complete state of both.
    async fn compare(&self) {
        for kind in 0..KINDS.len() {
            let (over_http, over_grpc) = self.list(kind, 500, 0).await;
            assert_eq!(over_grpc, over_http);
        }
        let (over_http, over_grpc) = self.read(&Act::Revisions(500)).await;
        assert_eq!(over_grpc, over_http);
        // The gateway that was called over gRPC shows the same over HTTP.
        let answer = get(&self.grpc.operator, "bindings?limit=500").await;
        assert_eq!(of_http(answer), self.list(2, 500, 0).await.1[0]);
    }
}

#[test]
fn whatever_is_asked_over_grpc_is_answered_and_written_as_over_http() {
    let runtime = Runtime::new().expect("a runtime needs nothing but threads");
    // One world for all cases, so that objects and revisions accumulate.
    let world = runtime.block_on(World::new());
    // Writes that always succeed.
    runtime.block_on(async {
        for act in [
            Act::Put(1, 1, 0, Expects::Right),
            Act::Apply(0, false),
            Act::Put(2, 3, 0, Expects::Right),
            Act::Patch(1, 1, 1, Expects::Right),
            Act::RollBack(2, None),
        ] {
            world.run(&act, false).await;
        }
    });
    let config = Config { cases: 8, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&acts(), |acts| {
            runtime.block_on(async {
                for (act, dry_run) in &acts {
                    world.run(act, *dry_run).await;
                }
                world.compare().await;
            });
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let revisions = runtime.block_on(world.read(&Act::Revisions(500))).1["revisions"].take();
    let revisions = revisions.as_array().expect("a list");
    assert!(revisions.len() >= 6, "each of them is a revision: {revisions:#?}");
    runtime.block_on(async { drop(world) });
}
