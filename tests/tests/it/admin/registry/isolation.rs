//! Tests isolation (G34): a caller confined to one of two tenants sends any request. No answer contains a
//! byte of the other tenant, and guessed names can't be told from missing ones.

use std::cell::Cell;

use hookgate::core::error::Code;
use hookgate_proto::{admin::v1::StreamEventsRequest, types::v1::ExtensionPoint};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    gateway::Gateway,
    token::{Token, token},
};
use http::Method;
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    admin::{
        events_support::{Stream, events},
        grpc::{events::EventSubscription, support::dial},
        registry::support::{Stored, apply, ask, confined, get, post, put, stored_as, written},
    },
    edge::support::{assert_http_error, assert_no_panic},
};

/// Part of everything that belongs to the other tenant, and of nothing else.
pub(crate) const CANARY: &str = "canary-of-globex";
/// The tenant that the caller is confined to.
pub(crate) const OWN: &str = "acme";

/// Values for `{}` in a path or query: own names, the other tenant's names, and guesses.
pub(crate) const GUESSES: &[&str] = &[
    "acme",
    "of-acme",
    "globex",
    "canary-of-globex-binding",
    "canary-of-globex-floor",
    "canary-of-globex-plugin",
    "content-policy",
    "for-all",
    "nobody",
    "*",
    "GLOBEX",
    "ACME",
    "acme%00",
    "acme%2F..%2Fglobex",
    "..%2Fglobex",
    "%2A",
    "globex%20",
    "acme,globex",
    "1",
    "2",
    "3",
    "18446744073709551615",
    "",
];

/// All routes, and some that don't exist.
const PATHS: &[&str] = &[
    "tenants",
    "tenants/{}",
    "tenants/{}/plan",
    "tenants/{}/explain?point=before_tool_call",
    "tenants/{}/explain?point=before_llm_request",
    "tenants/{}/explain?point=before_tool_call&label.plan=canary",
    "tenants/{}/bindings",
    "bindings",
    "bindings/{}",
    "bindings?tenant={}",
    "bindings?plugin={}",
    "bindings?limit=1",
    "bindings?limit=1&cursor={cursor}",
    "tenants?limit=1&cursor={cursor}",
    "tenants?label.plan={}",
    "plugins",
    "plugins/{}",
    "plugins/{}/enable",
    "plugins/{}/disable",
    "revisions",
    "revisions/{}",
    "revisions/{}/diff",
    "revisions/{}/diff?to={}",
    "revisions/{}/rollback",
    "revisions/{}/rollback?dry_run=true",
    "apply",
    "apply?dry_run=true",
    "status",
    "events",
    "events?tenant={}",
    "events?plugin={}",
    "events?event=registry.*",
    "{}",
    "tenants/{}?expected_version=0",
    "tenants/{}?expected_version=2&dry_run=true",
    "bindings/{}?expected_version=2&dry_run=true",
    "bindings/{}?expected_version=0",
    "plugins/{}?expected_version=2&force=true&dry_run=true",
];

/// One request.
#[derive(Debug, Clone)]
struct RequestCase {
    method: Method,
    path: String,
    body: Option<Value>,
    token: usize,
}

/// The registry and the callers.
pub(crate) struct World {
    pub(crate) it: Stored,
    confined: Vec<HttpAgent>,
    /// The callers' tokens.
    pub(crate) tokens: [String; 3],
    /// Cursors from the lists of unrestricted callers.
    pub(crate) cursors: Vec<String>,
}

pub(crate) async fn world() -> World {
    let setup = Gateway::with()
        .tenant(OWN)
        .builtin("content-policy", &json!({ "max_input_chars": 1 }))
        .binding_with("content-policy", 10, &json!({ "name": "for-all" }));
    let it = stored_as(setup.admin()).await;
    let endpoint =
        json!({ "name": "canary-of-globex-plugin", "endpoint": "http://127.0.0.1:9", "required": false });
    let labels = json!({ "plan": CANARY, "canary-of-globex-label": "yes" });
    let document = json!({
        "plugins": [endpoint],
        "tenants": [
            { "id": "globex", "labels": labels, "config": { "canary-of-globex-plugin": { "note": CANARY } } },
        ],
        "bindings": [
            { "name": "of-acme", "plugin": "content-policy", "tenant": "acme", "priority": 20 },
            {
                "name": "canary-of-globex-binding", "plugin": "canary-of-globex-plugin", "tenant": "globex",
                "priority": 20, "blocking": false, "match": { "tools": [CANARY] },
                "config": { "note": CANARY },
            },
            {
                "name": "canary-of-globex-floor", "plugin": "canary-of-globex-plugin", "selector": { "plan": CANARY },
                "priority": 30, "blocking": false,
            },
        ],
    });
    written(&apply(&it.operator, &format!("?reason={CANARY}"), document).await);
    let path = format!("tenants/{CANARY}?expected_version=0&reason={CANARY}");
    written(&put(&it.operator, &path, json!({ "labels": { "a": CANARY } })).await);
    let mut cursors = vec!["dGVuYW50AGdsb2JleA".to_owned(), String::new()];
    for path in ["tenants?limit=1", "bindings?limit=1", "bindings?limit=2", "revisions?limit=1"] {
        let page = get(&it.operator, path).await;
        cursors.push(page.body["next_cursor"].as_str().expect("there is more").to_owned());
    }
    let all = "hookgate:admin hookgate:read hookgate:invoke hookgate:plugin";
    let tokens = [
        confined(OWN),
        Token::for_operators().claim("tenant_id", OWN).mint(),
        Token::for_operators().claim("tenant_id", OWN).scopes(all).mint(),
    ];
    let confined = tokens.iter().map(|token| it.gateway.admin(token)).collect();
    World { it, confined, tokens, cursors }
}

/// Whether the path belongs to the caller's own tenant.
fn is_own(asked: &RequestCase) -> bool {
    let path = asked.path.split('?').next().unwrap_or_default();
    // A caller that may read a path learns its methods if it allows nothing but GET.
    let shown = ["tenants/acme/plan", "tenants/acme/explain", "events"];
    let objects = ["tenants/acme", "bindings", "bindings/of-acme"];
    shown.contains(&path) || (asked.method == Method::GET && objects.contains(&path))
}

impl World {
    async fn send(&self, agent: &HttpAgent, asked: &RequestCase) -> HttpAnswer {
        ask(agent, asked.method.clone(), &asked.path, asked.body.as_ref()).await
    }

    /// Explains the tenant's own chain at the point that has global bindings, its own, and the other
    /// tenant's.
    async fn explained(&self) {
        for token in 0..self.confined.len() {
            let path = "tenants/acme/explain?point=before_llm_request".to_owned();
            let asked = RequestCase { method: Method::GET, path, body: None, token };
            self.check(&asked).await;
            let all = self.send(&self.it.operator, &asked).await;
            assert!(all.text.contains(CANARY), "there is something to hide: {all:?}");
            let own = self.send(&self.confined[token], &asked).await;
            assert_eq!(own.body["steps"].as_array().map(Vec::len), Some(2), "{own:?}");
        }
    }

    async fn check(&self, asked: &RequestCase) {
        let answer = self.send(&self.confined[asked.token], asked).await;
        let text = format!("{:?}{}", answer.headers, answer.text);
        assert!(!text.contains(CANARY) && !text.contains("globex"), "{asked:?}: {answer:?}");
        let path = &asked.path;
        if asked.method == Method::GET && path.starts_with("bindings/") && path.contains('?') {
            // A visible binding accepts no query, whether it exists, could exist, or not.
            assert_http_error(&answer, Code::PayloadInvalid);
        } else if !is_own(asked) {
            assert_http_error(&answer, Code::NotFound);
            assert_eq!(answer.body["detail"], "There is nothing here that the token may see", "{asked:?}");
        }
    }
}

fn requests(cursors: &[String]) -> impl Strategy<Value = RequestCase> + use<> {
    let method = prop_oneof![
        6 => Just(Method::GET), 1 => Just(Method::PUT), 1 => Just(Method::PATCH), 1 => Just(Method::DELETE),
        1 => Just(Method::POST)
    ];
    let bodies = vec![
        json!({}),
        json!({ "labels": { "a": "b" } }),
        json!({ "remove": [{ "kind": "tenant", "name": "globex" }] }),
        json!({ "tenants": [{ "id": "globex" }] }),
        json!({ "plugin": "content-policy", "tenant": "acme", "priority": 20 }),
    ];
    let places = (select(PATHS), select(GUESSES), select(cursors.to_vec()));
    (method, places, select(bodies), 0..3_usize).prop_map(|(method, (path, guess, cursor), body, token)| {
        let path = path.replace("{cursor}", &cursor).replace("{}", guess);
        let body = (method != Method::GET && method != Method::DELETE).then_some(body);
        RequestCase { method, path, body, token }
    })
}

#[test]
fn no_byte_of_a_tenant_is_in_any_answer_to_an_operator_of_another() {
    let runtime = Runtime::new().expect("a runtime needs nothing but threads");
    let world = runtime.block_on(world());
    let hidden = Cell::new(0);
    runtime.block_on(world.explained());
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&requests(&world.cursors), |asked| {
        runtime.block_on(world.check(&asked));
        // The same as an unrestricted caller.
        if asked.method == Method::GET {
            let all = runtime.block_on(world.send(&world.it.operator, &asked));
            hidden.set(hidden.get() + usize::from(all.text.contains(CANARY)));
        }
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
    assert_ne!(hidden.get(), 0, "the unrestricted caller saw nothing of the other tenant either");
    runtime.block_on(async {
        assert_eq!(
            get(&world.it.operator, "tenants?limit=1").await.body["revision"],
            3,
            "nothing was written"
        );
        assert_no_panic(&world.it.gateway);
        drop(world);
    });
}

/// A call with more text than the built-in plugin allows.
async fn blocked(gateway: &Gateway, tenant: &str) -> HttpAnswer {
    let payload = json!({ "text": "too much" });
    gateway.http(&token(tenant)).call(ExtensionPoint::BeforeLlmRequest, payload).await
}

#[tokio::test]
async fn one_tenants_calls_are_in_no_event_for_an_operator_of_another() {
    let world = world().await;
    let (operator, own) = (&world.it.operator, &world.confined[2]);
    let mut stream = Stream::open(own, "").await;
    let mut client = dial(&world.it.gateway, &world.tokens[2]).await;
    let request = StreamEventsRequest { follow: true, ..StreamEventsRequest::default() };
    let mut over_grpc = EventSubscription::open(&mut client, request).await;
    // Written, previewed, rejected and rolled back.
    for (path, granted) in [
        ("tenants/globex?expected_version=2&reason=canary-of-globex", true),
        ("tenants/canary-of-globex-2?expected_version=0&dry_run=true", false),
        ("tenants/canary-of-globex-3?expected_version=9", false),
    ] {
        let answer = put(operator, path, json!({ "labels": { "plan": "canary-of-globex-new" } })).await;
        assert_eq!(answer.body["revision"].is_number(), granted, "{answer:?}");
    }
    written(&post(operator, "revisions/3/rollback?reason=canary-of-globex").await);
    for tenant in ["globex", CANARY] {
        assert_eq!(blocked(&world.it.gateway, tenant).await.status, 413, "what is blocked is an event");
    }
    let mine = blocked(&world.it.gateway, OWN).await;
    let first = stream.next().await;
    assert_eq!(first.data["request_id"], mine.body["request_id"], "the others' are as if absent: {first:?}");
    assert_eq!(over_grpc.event().await.1, first.data, "over gRPC too");
    let (kept, all) = (events(own, "").await, events(operator, "").await);
    assert!(format!("{all:?}").contains(CANARY), "there was something to hide: {all:?}");
    let text = format!("{kept:?}{first:?}");
    assert!(!text.contains(CANARY) && !text.contains("globex"), "{text}");
}
