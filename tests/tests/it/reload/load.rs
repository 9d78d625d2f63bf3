//! Tests 200 reloads under load: no call fails, and none mixes two configurations (G24).

use std::collections::BTreeMap;

use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, BeforeToolCallResponse},
    types::v1::{BeforeToolCallPayload, NoticeKind},
};
use hookgate_tests::{
    fake::{Act, FakePlugin, notice},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Duration, timeout},
};

use crate::edge::support::{POINT, payload};

const RELOADS: u64 = 200;
const WORKERS: usize = 6;
/// The timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(35);

/// A plugin that answers with the configurations that it used.
async fn plugin(name: &str) -> FakePlugin {
    let plugin = FakePlugin::named(name)
        .config_schema(json!({ "properties": { "version": {} } }))
        .tenant_config_schema(json!({ "properties": { "rule": {} } }))
        .start_unix()
        .await;
    plugin.set_with(POINT, |seen| {
        let config: Value = serde_json::from_slice(&seen.call.tenant_config).unwrap_or_default();
        let made_with = json!({ "digest": seen.call.config_digest, "tenant": config["rule"] });
        Act::pass().with_notice(notice(NoticeKind::Info, "", "made with", &made_with))
    });
    plugin
}

/// Everything in it contains `version`.
fn setup(plugins: [&FakePlugin; 2], version: u64) -> Setup {
    let (config, rule) = (json!({ "version": version }), json!({ "rule": version }));
    let of_tenant = json!({ "config": { "first": rule, "second": rule } });
    let mut setup = Gateway::with().tenant_with("acme", &of_tenant);
    for (plugin, priority) in plugins.into_iter().zip(1..) {
        setup = setup.plugin_with(plugin, &json!({ "config": config })).binding(plugin.name(), priority);
    }
    setup
}

/// What produced an answer.
#[derive(Debug)]
struct CallAnswer {
    revision: u64,
    plan: String,
    notices: Vec<Value>,
}

/// Workers run until `stop`, and report in `newest` the latest revision of any answer.
#[derive(Clone)]
struct Course {
    stop: watch::Receiver<bool>,
    newest: watch::Sender<u64>,
}

impl Course {
    fn is_over(&self) -> bool {
        *self.stop.borrow()
    }

    fn saw(&self, revision: u64) {
        self.newest.send_if_modified(|newest| {
            let is_newer = revision > *newest;
            *newest = revision.max(*newest);
            is_newer
        });
    }
}

async fn over_http(gateway: &Gateway, course: Course) -> Vec<CallAnswer> {
    let (agent, mut answers) = (gateway.http(&token("acme")), Vec::new());
    while !course.is_over() {
        let answer = agent.call(POINT, payload()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let notices = answer.body["notices"].as_array().unwrap();
        answers.push(CallAnswer {
            revision: answer.body["revision"].as_u64().unwrap(),
            plan: answer.body["plan_digest"].as_str().unwrap().into(),
            notices: notices.iter().map(|notice| notice["details"].clone()).collect(),
        });
        course.saw(answers[answers.len() - 1].revision);
    }
    answers
}

async fn over_grpc(gateway: &Gateway, course: Course) -> Vec<CallAnswer> {
    let (agent, mut answers) = (gateway.grpc(&token("acme")).await.client, Vec::new());
    while !course.is_over() {
        let payload =
            BeforeToolCallPayload { tool_name: "fs.read".into(), args: "{}".into(), ..Default::default() };
        let request = BeforeToolCallRequest { payload: Some(payload), ..Default::default() };
        let answer = agent.clone().before_tool_call(request).await.unwrap().into_inner();
        let BeforeToolCallResponse { revision, plan_digest, notices, .. } = answer;
        answers.push(CallAnswer {
            revision,
            plan: plan_digest,
            notices: notices.iter().map(|notice| serde_json::from_slice(&notice.details).unwrap()).collect(),
        });
        course.saw(revision);
    }
    answers
}

#[tokio::test]
async fn two_hundred_reloads_under_load_fail_no_call_and_mix_no_configurations() {
    let (first, second) = (plugin("first").await, plugin("second").await);
    let gateway = setup([&first, &second], 1).start().await;
    let (stop, newest) = (watch::Sender::new(false), watch::Sender::new(0));
    let course = Course { stop: stop.subscribe(), newest: newest.clone() };
    let reload = async {
        for version in 2..=RELOADS + 1 {
            gateway.reload(&setup([&first, &second], version));
            gateway.wait_for_revision(version).await;
            let used =
                timeout(PATIENCE, newest.subscribe().wait_for(|newest| *newest == version)).await.is_ok();
            assert!(used, "no call is answered by {version}");
        }
        stop.send_replace(true);
    };
    let http = futures::future::join_all((0..WORKERS / 2).map(|_| over_http(&gateway, course.clone())));
    let grpc = futures::future::join_all((0..WORKERS / 2).map(|_| over_grpc(&gateway, course.clone())));
    let ((), http, grpc) = tokio::join!(reload, http, grpc);

    // The plugin-level configuration of each digest, as handed to the plugins.
    let mut versions = BTreeMap::new();
    for told in first.initialized().into_iter().chain(second.initialized()) {
        let config: Value = serde_json::from_slice(&told.config).unwrap();
        versions.insert(told.config_digest, config["version"].as_u64().unwrap());
    }
    let (mut plans, mut calls) = (BTreeMap::new(), 0);
    for worker in http.iter().chain(&grpc) {
        assert!(worker.is_sorted_by_key(|answered| answered.revision), "an answer went back");
        for answered in worker {
            // The file's version equals the revision.
            let [one, other] = answered.notices.as_slice() else { panic!("{answered:?}") };
            for made_with in [one, other] {
                let digest = made_with["digest"].as_str().unwrap();
                assert_eq!(versions.get(digest), Some(&answered.revision), "{answered:?}");
                assert_eq!(made_with["tenant"].as_u64(), Some(answered.revision), "{answered:?}");
            }
            let plan = plans.entry(answered.revision).or_insert_with(|| answered.plan.clone());
            assert_eq!(*plan, answered.plan, "{answered:?}");
            calls += 1;
        }
    }
    assert!(calls > 1_000, "{calls} calls");
    assert!(plans.keys().copied().filter(|revision| *revision > 1).eq(2..=RELOADS + 1), "all were used");
    let counts = (first.counts(), second.counts());
    assert_eq!((counts.0.uninitialized, counts.1.uninitialized), (0, 0), "{counts:?}");
    assert_eq!((counts.0.shutdowns, counts.1.shutdowns), (0, 0), "{counts:?}");
}
