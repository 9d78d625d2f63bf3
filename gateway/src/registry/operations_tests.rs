use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{config::from_text, core::object::Owner, registry::edit::EditAction, store::ObjectContent};

/// A process whose file allows a network and a directory.
struct Listing;

impl DryRunner for Listing {
    fn dry_run(&self, contents: &Contents) -> Result<DryRunState, Problems> {
        let text = "
auth: { issuers: [{ issuer: i, audience: a, jwks_url: \"https://id/keys\", tenants: \"*\" }] }
tenants: { unknown: accept }
egress: { cidrs: [10.1.0.0/16], socket_dirs: [/run/plugins] }
secrets: { dir: /secrets }
";
        let whole = from_text("f.yaml".into(), text, [])?.with(contents.objects());
        let table = RouteTable::build(&whole.config, &[], contents.revision());
        let table = table.map_err(|problems| whole.render(&problems))?;
        let (manifests, refused) = (BTreeMap::new(), Vec::new());
        Ok(DryRunState {
            config: Arc::new(whole.config),
            table,
            manifests,
            troubles: Default::default(),
            refused,
        })
    }
}

fn operations() -> (TempDir, Operations) {
    let folder = tempfile::tempdir().expect("there is room");
    let url = config::StoreUrl(format!("sqlite:{}", folder.path().join("hookgate.db").display()));
    let settings = config::Store { url, ..config::Store::default() };
    (folder, Operations::new(Registry::open(&settings).expect("a store"), Arc::new(Listing)))
}

async fn write(operations: &Operations, spec: Value) -> Result<WriteOutcome, OperationError> {
    let writer = Writer { author: "olga".into(), reason: String::new(), upon: None };
    let edit =
        Edit { kind: ObjectKind::Plugin, name: "guard".into(), expected: None, wish: EditAction::Be(spec) };
    operations.write(&writer, &[edit], None, false).await
}

#[tokio::test]
async fn a_plugin_that_names_what_it_may_not_reach_is_not_written() {
    let (_folder, operations) = operations();
    let refused = async |spec: Value| match write(&operations, spec).await {
        Err(OperationError::Invalid(wrong)) => wrong,
        other => panic!("{other:?}"),
    };
    for (spec, pointer, key) in [
        (json!({ "endpoint": "http://10.2.0.1:1" }), "/endpoint", "`egress.cidrs`"),
        (
            json!({ "endpoints": ["http://10.1.0.1:1", "unix:///run/a"] }),
            "/endpoints/1",
            "`egress.socket_dirs`",
        ),
        (
            json!({ "builtin": "content-policy", "config": { "a": { "b": "${CANARY:-canary}" } } }),
            "/config/a/b",
            "HOOKGATE_SECRET_*",
        ),
        (
            json!({ "endpoint": "https://10.1.0.1:1", "tls": { "ca_file": "/etc/ca" } }),
            "/tls/ca_file",
            "`secrets.dir`",
        ),
    ] {
        let wrong = refused(spec).await;
        let [Invalid { object, pointer: at, message }] = &*wrong else { panic!("one problem: {wrong:?}") };
        assert_eq!((object, &**at), (&Some((ObjectKind::Plugin, "guard".to_owned())), pointer));
        assert!(message.contains(key) && !message.contains("canary"), "{message}");
    }
    assert_eq!(operations.contents().await.expect("a store").revision(), 0);
    let fine = json!({ "endpoint": "http://10.1.0.1:1", "config": { "a": "${HOOKGATE_SECRET_A}" }, "allow_plaintext": true });
    assert_eq!(write(&operations, fine).await.expect("it is listed").revision, Some(1));
}

#[tokio::test]
async fn references_go_in_plaintext_beyond_loopback_only_where_the_writer_says_so() {
    let spec = json!({ "endpoint": "http://10.1.0.1:1", "config": { "a": "${HOOKGATE_SECRET_A}" } });
    let (_folder, operations) = operations();
    match write(&operations, spec).await {
        Err(OperationError::Refused(EditError::Wrong { problems, .. })) => {
            assert_eq!(problems[0].pointer, "/config");
            assert!(problems[0].sentence().contains("allow_plaintext"), "{problems:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// An entry that is no longer allowed can still be switched off.
#[tokio::test]
async fn a_write_is_not_refused_for_what_it_leaves_as_it_was() {
    let (_folder, operations) = operations();
    let spec = |enabled| json!({ "name": "guard", "endpoint": "http://10.2.0.1:1", "enabled": enabled });
    let content = ObjectContent { owner: Owner::Api, spec: spec(true).into() };
    let change =
        Change { kind: ObjectKind::Plugin, name: "guard".into(), before: None, after: Some(content) };
    let draft = crate::store::RevisionDraft {
        id: uuid::Uuid::now_v7(),
        base: 0,
        at: time::OffsetDateTime::UNIX_EPOCH,
        author: "olga".into(),
        reason: String::new(),
        changes: vec![change],
    };
    let store = &operations.registry().expect("there is one").0.store;
    store.prepare().await.expect("a store");
    store.commit(&draft).await.expect("written");
    assert_eq!(write(&operations, spec(false)).await.expect("it stays where it is").revision, Some(2));
}
