//! REST writes that each change a tenant and its binding in one revision, and checks of their history.
//! Shared by tests that kill processes and stop databases meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hookgate::{
    core::{
        error::Code,
        object::{ObjectKind, Owner},
    },
    store::{ObjectContent, Revision, Snapshot},
};
use hookgate_tests::agent::{HttpAgent, HttpAnswer};
use http::Method;
use serde_json::{Value, json};

use crate::edge::support::assert_http_error;

/// The outcome of a write as far as its writer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteAnswer {
    /// It is this revision.
    Written(u64),
    /// Another writer was faster.
    Conflict,
    /// The store can't be reached, so nothing was written.
    Unavailable,
    /// The connection to the store was lost meanwhile, so the outcome is unknown.
    Unknown,
    /// The gateway was gone before it answered.
    Lost,
}

/// Sends a request below `/admin/v1/`; returns `None` if no answer came.
async fn ask(agent: &HttpAgent, method: Method, path: &str, body: Option<&Value>) -> Option<HttpAnswer> {
    let mut request = agent.request(method, &format!("/admin/v1/{path}"));
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    HttpAgent::send(request).await.ok()
}

/// The version of an object; 0 if it doesn't exist.
async fn version(agent: &HttpAgent, path: &str) -> Option<u64> {
    let answer = ask(agent, Method::GET, path, None).await?;
    match answer.status {
        404 => Some(0),
        _ => Some(answer.body["version"].as_u64().unwrap_or_else(|| panic!("no version: {answer:?}"))),
    }
}

/// Sets `label` on the tenant `t-AT` and its binding `b-AT`, with the versions that this gateway shows as
/// the precondition.
pub(crate) async fn write(agent: &HttpAgent, at: usize, label: &str) -> WriteAnswer {
    let (tenant, binding) = (format!("t-{at}"), format!("b-{at}"));
    let Some(of_tenant) = version(agent, &format!("tenants/{tenant}")).await else {
        return WriteAnswer::Lost;
    };
    let Some(of_binding) = version(agent, &format!("bindings/{binding}")).await else {
        return WriteAnswer::Lost;
    };
    let document = json!({
        "tenants": [{ "id": tenant, "labels": { "label": label } }],
        "bindings": [{
            "name": binding, "plugin": "content-policy", "tenant": tenant, "priority": 20,
            "match": { "tools": [label] },
        }],
        "versions": { "tenants": { tenant: of_tenant }, "bindings": { binding: of_binding } },
    });
    let sent = ask(agent, Method::POST, &format!("apply?reason={label}"), Some(&document)).await;
    let Some(answer) = sent else { return WriteAnswer::Lost };
    match answer.status {
        200 => WriteAnswer::Written(answer.body["revision"].as_u64().expect("a new label is a change")),
        409 => {
            assert_http_error(&answer, Code::Conflict);
            WriteAnswer::Conflict
        }
        _ => {
            assert_http_error(&answer, Code::StoreUnavailable);
            match answer.text.contains("check the registry") {
                true => WriteAnswer::Unknown,
                false => WriteAnswer::Unavailable,
            }
        }
    }
}

/// What the writers know about their writes, by label.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteRecord {
    pub(crate) attempted: BTreeSet<String>,
    /// By revision.
    pub(crate) acknowledged: BTreeMap<u64, String>,
}

impl WriteRecord {
    /// Records an answer, and checks that no revision is acknowledged twice.
    pub(crate) fn note(&mut self, label: &str, answered: WriteAnswer) {
        if let WriteAnswer::Written(revision) = answered {
            let twice = self.acknowledged.insert(revision, label.to_owned());
            assert_eq!(twice, None, "two writes are revision {revision}: {label}");
        }
    }
}

type State = BTreeMap<(ObjectKind, Arc<str>), (u64, ObjectContent)>;

/// Checks the history: every acknowledged write is there, and every other one completely or not at all.
/// Revisions have no gaps, each continues the previous one, and the last equals `now`.
pub(crate) fn assert_history(revisions: &[Revision], now: &Snapshot, said: &WriteRecord) {
    assert!(revisions.iter().map(|revision| revision.number).eq(1..=now.revision), "there are gaps");
    let mut state = State::new();
    let mut by_label = BTreeMap::new();
    for revision in revisions {
        if revision.author != "file" {
            let label = &revision.reason;
            assert!(said.attempted.contains(label), "no writer wrote this: {revision:?}");
            assert_eq!(by_label.insert(label.clone(), revision.number), None, "written twice: {label}");
            assert_whole(revision);
        }
        for change in &revision.changes {
            let key = (change.kind, Arc::clone(&change.name));
            let before = state.get(&key).map(|(_, content)| content);
            assert_eq!(before, change.before.as_ref(), "{} was based on other contents", revision.number);
            match &change.after {
                Some(after) => drop(state.insert(key, (revision.number, after.clone()))),
                None => drop(state.remove(&key)),
            }
        }
    }
    for (revision, label) in &said.acknowledged {
        assert_eq!(by_label.get(label), Some(revision), "{label} was acknowledged as {revision}");
    }
    let there = now.objects.iter();
    let there: State =
        there.map(|one| ((one.kind, Arc::clone(&one.name)), (one.version, one.content.clone()))).collect();
    assert_eq!(state, there, "the revisions don't end in the current contents");
}

/// Checks that the tenant and its binding have the same label.
fn assert_whole(revision: &Revision) {
    let [tenant, binding] = &*revision.changes else { panic!("half a write: {revision:?}") };
    let pair = (tenant.name.strip_prefix("t-"), binding.name.strip_prefix("b-"));
    assert!(pair.0.is_some() && pair.0 == pair.1, "{revision:?}");
    let [tenant, binding] =
        [tenant, binding].map(|change| change.after.as_ref().expect("nothing is deleted here"));
    assert_eq!([tenant.owner, binding.owner], [Owner::Api; 2]);
    let label = json!(revision.reason);
    assert_eq!(
        (&tenant.spec.value()["labels"]["label"], &binding.spec.value()["match"]["tools"][0]),
        (&label, &label),
        "two writes in one"
    );
}
