//! Compares docs/openapi.json with the code's own closed sets, and checks where it is served. The answers
//! themselves are checked wherever a test gets one ([`hookgate_tests::openapi`]).

mod generated;
mod ordered_json;

use std::collections::BTreeSet;

use hookgate::{
    config::UnknownTenant,
    core::{
        error::Code,
        point::Point,
        step::{Mode, OnError, Reason, StepOutcome},
    },
    invoke::explain,
    routing::ConditionOutcome,
    upstream::{BreakerState, State, Why},
};
use hookgate_tests::{
    gateway::Gateway,
    openapi::{DOCUMENT, Port, resolve, validate},
    repository,
    token::Token,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn schema(name: &str) -> &'static Value {
    &DOCUMENT["components"]["schemas"][name]
}

/// The values of an `enum`.
fn words(schema: &Value) -> BTreeSet<&str> {
    let listed = schema["enum"].as_array().unwrap_or_else(|| panic!("no `enum`: {schema}"));
    listed.iter().map(|word| word.as_str().expect("words")).collect()
}

/// The operations of the four points.
fn calls() -> Vec<(&'static str, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let calls = paths.iter().filter(|(path, _)| path.starts_with("/v1/") && !path.starts_with("/v1/hooks/"));
    calls.filter_map(|(path, item)| Some((path.as_str(), item.get("post")?))).collect()
}

#[test]
fn closed_sets_are_those_of_the_code() {
    assert_eq!(words(schema("StepOutcome")), StepOutcome::ALL.iter().map(|one| one.as_str()).collect());
    assert_eq!(words(schema("StepReason")), Reason::ALL.iter().map(|one| one.as_str()).collect());
    assert_eq!(words(schema("Point")), Point::ALL.iter().map(|one| one.as_str()).collect());
    assert_eq!(words(schema("PluginState")), State::ALL.iter().map(|one| one.as_str()).collect());
    assert_eq!(words(schema("PluginReason")), Why::all().map(Why::as_str).collect());
    let breaker = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];
    let breaker = breaker.iter().map(|state| state.as_str()).collect();
    assert_eq!(words(&schema("Endpoint")["properties"]["breaker"]), breaker);
    let modes = [Mode::Enforce, Mode::Advise, Mode::Observe].iter().map(|mode| mode.as_str()).collect();
    assert_eq!(words(&schema("PlanStep")["properties"]["mode"]), modes);
    let states = schema("Status")["properties"]["plugins"]["properties"].as_object().unwrap();
    assert_eq!(states.keys().map(String::as_str).collect::<BTreeSet<_>>(), words(schema("PluginState")));
}

/// The variants of `T`: serde lists them in its error for an unknown one.
fn variants<T: DeserializeOwned>() -> BTreeSet<String> {
    let wrong = serde_json::from_value::<T>(json!("?")).err().expect("`?` is none of them").to_string();
    let names = wrong.split('`').skip(1).step_by(2).filter(|name| *name != "?");
    names.map(str::to_owned).collect()
}

#[test]
fn closed_sets_of_explanations_are_those_of_the_code() {
    let of = |name: &str, member: &str| {
        let at = schema(name).pointer(&format!("/properties/{member}"));
        words(at.unwrap_or_else(|| panic!("{name}: no {member}"))).into_iter().map(str::to_owned).collect()
    };
    let described: [BTreeSet<String>; 9] = [
        of("Explanation", "tenant/properties/status"),
        of("Explanation", "tenant/properties/unknown"),
        of("StepExplained", "mode"),
        of("StepExplained", "on_error"),
        of("StepExplained", "timeout_source"),
        of("StepExplained", "source"),
        of("StepExplained", "conditions/items/properties/result"),
        of("AbsentBinding", "cause"),
        words(schema("ExpectedOutcome")).into_iter().map(str::to_owned).collect(),
    ];
    let coded = [
        variants::<explain::TenantLookup>(),
        variants::<UnknownTenant>(),
        variants::<Mode>(),
        variants::<OnError>(),
        variants::<explain::TimeoutSource>(),
        variants::<explain::BindingSource>(),
        variants::<ConditionOutcome>(),
        variants::<explain::AbsenceCause>(),
        variants::<explain::ExpectedOutcome>(),
    ];
    assert_eq!(described, coded);
    assert!(coded.iter().all(|names| names.len() > 1), "{coded:?}");
}

/// The names in the error for an unknown name are those that the code accepts.
#[tokio::test]
async fn the_query_of_an_explanation_is_the_one_that_is_taken() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let operator = gateway.admin(&Token::for_operators().mint());
    let path = "/admin/v1/tenants/{id}/explain";
    let at = path.replace("{id}", "acme") + "?point=before_tool_call";
    let refusal = operator.get(&format!("{at}&else=1")).await.unwrap();
    assert_eq!(refusal.status, 400, "{refusal:?}");
    let (_, listed) = refusal.body["detail"].as_str().unwrap().split_once("the members are ").unwrap();
    let taken: BTreeSet<_> = listed.split([',', ' ']).filter(|word| !["", "and"].contains(word)).collect();

    let described = DOCUMENT["paths"][path]["parameters"].as_array().unwrap();
    let in_query = described.iter().filter(|parameter| parameter["in"] == json!("query"));
    let names = in_query.map(|parameter| match parameter["name"].as_str().unwrap() {
        // Exploded: each member has its own name.
        "labels" => "label.KEY",
        name => name,
    });
    assert_eq!(names.collect::<BTreeSet<_>>(), taken);
    for name in taken.iter().filter(|name| !["point", "hook", "surface"].contains(name)) {
        let answer = operator.get(&format!("{at}&{name}=1")).await.unwrap();
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
    }
    let at_hook = path.replace("{id}", "acme") + "?hook=recall";
    assert_eq!(operator.get(&at_hook).await.unwrap().status, 200);
    assert_eq!(operator.get(&format!("{at}&hook=recall")).await.unwrap().status, 400, "one of the two");
    for outside in ["0", "60001"] {
        let answer = operator.get(&format!("{at}&timeout_ms={outside}")).await.unwrap();
        assert_eq!(answer.status, 400, "{outside}: {answer:?}");
    }
}

#[test]
fn every_code_that_asks_to_come_back_is_named_where_it_says_so() {
    let said = DOCUMENT["components"]["headers"]["RetryAfter"]["description"].as_str().unwrap();
    let come_back = [
        Code::TenantLimited,
        Code::Overloaded,
        Code::Draining,
        Code::StoreUnavailable,
        Code::RecordUnavailable,
    ];
    for code in come_back {
        assert!(said.contains(code.as_str()), "{code}: {said}");
    }
}

/// The values in `examples`, each with its schema.
fn examples<'a>(part: &'a Value, found: &mut Vec<(&'a Value, &'a Value)>) {
    match part {
        Value::Object(members) => {
            if let (Some(schema), Some(Value::Object(named))) =
                (members.get("schema"), members.get("examples"))
            {
                found.extend(named.values().map(|example| (schema, &resolve(example)["value"])));
            }
            members.values().for_each(|member| examples(member, found));
        }
        Value::Array(list) => list.iter().for_each(|member| examples(member, found)),
        _ => {}
    }
}

#[test]
fn every_example_is_as_its_schema_has_it() {
    let mut found = Vec::new();
    examples(&DOCUMENT, &mut found);
    for (schema, example) in &found {
        if let Err(wrong) = validate(schema, example) {
            panic!("{wrong}: {example}");
        }
    }
    for (path, operation) in calls() {
        let of = |status: &str| {
            let mut found = Vec::new();
            examples(resolve(&operation["responses"][status]), &mut found);
            found.into_iter().map(|(_, example)| example["decision"].clone()).collect::<Vec<_>>()
        };
        // Only a tool's result can be an answer.
        let decisions =
            if path == "/v1/before-tool-call" { &["answer", "continue"][..] } else { &["continue"] };
        assert_eq!(of("200"), decisions, "{path}");
        assert!(of("403").contains(&json!("block")), "{path}: no example of a block");
        assert!(of("401").contains(&Value::Null), "{path}: no example of an error");
    }
    let mut requests = Vec::new();
    calls().into_iter().for_each(|(_, operation)| examples(&operation["requestBody"], &mut requests));
    assert_eq!(requests.len(), Point::ALL.len(), "an example of a request for each point");
}

#[test]
fn the_document_has_the_version_of_the_gateway_and_each_port() {
    assert_eq!(DOCUMENT["info"]["version"], json!(env!("CARGO_PKG_VERSION")));
    for port in Port::ALL {
        assert!(DOCUMENT["x-elsewhere"].get(port.as_str()).is_some(), "{port:?}");
    }
}

#[tokio::test]
async fn the_document_is_served_on_the_data_and_the_ops_port_without_a_token() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let file = std::fs::read_to_string(repository::root().join("docs/openapi.json")).unwrap();
    for agent in [gateway.http_without_token(), gateway.ops()] {
        let answer = agent.get("/openapi.json").await.expect("the port answers");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        assert!(answer.text == file, "what is served is what is in git");
    }
    let other = gateway.http_without_token().request(http::Method::POST, "/openapi.json").body("{}");
    let other = crate::edge::support::send(other).await;
    crate::edge::support::assert_http_error(&other, Code::MethodNotAllowed);
    assert!(other.header("allow").is_some_and(|allow| allow.starts_with("GET")), "{other:?}");
}
