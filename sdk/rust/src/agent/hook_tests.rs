use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate_proto::gateway::v1::{
    self as wire, RunHookRequest, RunHookResponse,
    hook_service_server::{HookService, HookServiceServer},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::{Code, async_trait, metadata::MetadataMap};
use tonic_types::{ErrorDetails, StatusExt};

use super::*;
use crate::{
    Context, Point,
    agent::{RequestContext, Token},
    context::CallSite,
    listen::connections,
};

type Answer = Result<RunHookResponse, Status>;

/// Gives every hook the same answer, and records the requests.
#[derive(Clone)]
struct Gateway {
    answer: Arc<dyn Fn() -> Answer + Send + Sync>,
    /// Never answers.
    hangs: bool,
    calls: Arc<Mutex<Vec<(MetadataMap, RunHookRequest)>>>,
}

impl Gateway {
    fn new(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Gateway { answer: Arc::new(answer), hangs: false, calls: Arc::default() }
    }

    /// Serves on a free port until the test's runtime ends.
    async fn agent(&self) -> Agent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = tonic::transport::Server::builder().add_service(HookServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(connections(listener)));
        Agent::new(&address, Token::fixed("token").unwrap()).unwrap()
    }

    fn call(&self) -> (MetadataMap, RunHookRequest) {
        self.calls.lock().unwrap()[0].clone()
    }
}

#[async_trait]
impl HookService for Gateway {
    async fn run_hook(&self, request: Request<RunHookRequest>) -> Result<Response<RunHookResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.calls.lock().unwrap().push((metadata, message));
        if self.hangs {
            std::future::pending::<()>().await;
        }
        (self.answer)().map(Response::new)
    }
}

fn contribution(plugin: &str, kind: &str, value: &'static str) -> wire::PluginContribution {
    wire::PluginContribution { plugin: Some(plugin.to_owned()), kind: kind.to_owned(), value: value.into() }
}

fn contributed() -> RunHookResponse {
    RunHookResponse {
        contributions: vec![
            contribution("notes", "memory", r#"{"content":"tea"}"#),
            contribution("diary", "note", "9007199254740993"),
            contribution("diary", "memory", r#"{"content":"milk"}"#),
        ],
        notices: vec![PluginNotice { message: "three".to_owned(), ..Default::default() }],
        steps: vec![wire::Step::default()],
        plan_digest: "plan".to_owned(),
        revision: 7,
        request_id: "id".to_owned(),
    }
}

#[tokio::test]
async fn a_hook_gives_contributions_notices_and_facts() {
    let gateway = Gateway::new(|| Ok(contributed()));
    let agent = gateway.agent().await;
    let answer = agent.run_hook("recall", &json!({ "message": "hi" })).await.unwrap();
    let from: Vec<_> = answer.contributions.iter().filter_map(|one| one.plugin.as_deref()).collect();
    assert_eq!(from, ["notes", "diary", "diary"]);
    assert_eq!(answer.notices[0].message, "three");
    let AnswerFacts { request_id, plan_digest, revision, steps } = answer.answered;
    assert_eq!((request_id.as_str(), plan_digest.as_str(), revision, steps.len()), ("id", "plan", 7, 1));
    let (_, sent) = gateway.call();
    assert_eq!((sent.hook.as_str(), &*sent.body), ("recall", br#"{"message":"hi"}"#.as_slice()));
}

#[tokio::test]
async fn contributions_are_found_by_kind_in_order_and_parsed_as_types() {
    #[derive(serde::Deserialize)]
    struct Memory {
        content: String,
    }
    let agent = Gateway::new(|| Ok(contributed())).agent().await;
    let answer = agent.run_hook("recall", &json!({})).await.unwrap();
    let memories = answer.of_kind("memory").map(|memory| memory.parse::<Memory>().unwrap().content);
    assert_eq!(memories.collect::<Vec<_>>(), ["tea", "milk"]);
    assert_eq!(answer.first("memory"), answer.contributions.first());
    assert_eq!(answer.first("note").unwrap().parse::<u64>().unwrap(), 9_007_199_254_740_993);
    assert!(answer.first("note").unwrap().parse::<Memory>().is_err());
    assert_eq!(answer.first("inject"), None);
}

#[tokio::test]
async fn an_error_has_the_facts_of_one_at_a_point_and_counts_as_no_contribution_if_told_so() {
    let agent = Gateway::new(|| {
        let metadata = [("plugin", "notes"), ("binding", "all"), ("step_reason", "timeout")];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut details = ErrorDetails::with_error_info("PLUGIN_TIMEOUT", "hookgate", metadata);
        details.set_retry_info(Some(Duration::from_secs(3)));
        Err(Status::with_error_details(Code::Unavailable, "too late", details))
    })
    .agent()
    .await;
    let failed = agent.run_hook("recall", &json!({})).await.unwrap_err();
    assert_eq!(failed.to_string(), "no answer at the hook recall: PLUGIN_TIMEOUT too late");
    assert_eq!(failed.hook, "recall");
    let error = failed.error;
    assert_eq!((error.code.as_deref(), error.status), (Some("PLUGIN_TIMEOUT"), Code::Unavailable));
    let step = (error.plugin.as_deref(), error.binding.as_deref(), error.reason.as_deref());
    assert_eq!(step, (Some("notes"), Some("all"), Some("timeout")));
    assert!(error.is_transient());
    assert_eq!(error.retry_after, Some(Duration::from_secs(3)));

    let answer = agent.run_hook("recall", &json!({})).await.unwrap_or_default();
    assert!(answer.contributions.is_empty() && answer.answered.request_id.is_empty());
}

#[tokio::test]
async fn a_body_that_is_no_json_is_an_error_and_is_not_sent() {
    let gateway = Gateway::new(|| Ok(contributed()));
    let body = std::collections::HashMap::from([((1, 2), "the key is not a string")]);
    let failed = gateway.agent().await.run_hook("recall", &body).await.unwrap_err();
    assert_eq!((failed.error.status, failed.error.code), (Code::InvalidArgument, None));
    assert!(failed.error.message.starts_with("the body: "), "{}", failed.error.message);
    assert_eq!(gateway.calls.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_gateway_that_does_not_answer_in_time_or_at_all_is_an_error() {
    let gateway = Gateway { hangs: true, ..Gateway::new(|| Ok(contributed())) };
    let agent = gateway.agent().await.with_timeout(Duration::from_secs(1));
    let failed = agent.run_hook("recall", &Value::Null).await.unwrap_err();
    assert_eq!((failed.error.status, failed.error.code), (Code::DeadlineExceeded, None));
    assert_eq!(gateway.call().0.get("grpc-timeout").unwrap(), "1000000u");

    // A port for a service that nobody runs any more.
    let agent = Agent::new("http://127.0.0.1:1", Token::fixed("token").unwrap()).unwrap();
    let failed = agent.run_hook("recall", &json!({})).await.unwrap_err();
    assert_eq!(failed.error.status, Code::Unavailable);
}

#[tokio::test]
async fn token_context_plan_and_what_a_caller_forwards_are_sent() {
    let mut metadata = MetadataMap::new();
    metadata
        .insert("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    metadata.insert("hookgate-depth", "2".parse().unwrap());
    metadata.insert("grpc-timeout", "3S".parse().unwrap());
    let site = CallSite::Point(Point::BeforeToolCall);
    let ctx = Context::new(site, &mut Default::default(), &metadata, Default::default());
    let context = RequestContext { session_id: Some("s".to_owned()), ..Default::default() };

    let gateway = Gateway::new(|| Ok(contributed()));
    let agent = gateway.agent().await.with_context(context.clone()).with_plan("expected").with_caller(&ctx);
    agent.run_hook("recall", &json!({})).await.unwrap();
    let (sent, message) = gateway.call();
    assert_eq!(message.context, Some(context));
    assert_eq!(message.expect_plan_digest.as_deref(), Some("expected"));
    assert_eq!(sent.get("authorization").unwrap(), "Bearer token");
    for key in ["traceparent", "hookgate-depth"] {
        assert_eq!(sent.get(key), metadata.get(key), "{key}");
    }
    let timeout = sent.get("grpc-timeout").unwrap().to_str().unwrap();
    let micros: u64 = timeout.trim_end_matches('u').parse().unwrap();
    assert!((1_000_000..=3_000_000).contains(&micros), "{timeout}");
}
