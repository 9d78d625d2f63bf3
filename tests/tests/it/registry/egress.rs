//! Tests what plugins written through the admin API may reach: addresses, names and sockets that `egress`
//! lists, and references and files that `secrets.dir` contains. Anything else is never connected to or
//! read.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use hookgate::core::object::ObjectKind;
use hookgate_tests::{
    ca::Ca,
    fake::FakePlugin,
    gateway::{Gateway, Line, Setup},
    token::token,
};
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use crate::{
    edge::support::{POINT, payload},
    store::support::{Place, api, change, draft},
};

const CANARY: &str = "canary-5b1f";
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A gateway's registry with objects of the API, and a folder.
struct Rig {
    place: Place,
    folder: tempfile::TempDir,
}

impl Rig {
    /// Creates plugins of the API, each with a tenant of the same name, so that its step is the only one.
    async fn with(plugins: &[Value]) -> Self {
        let rig = Rig { place: Place::file(), folder: tempfile::tempdir().unwrap() };
        let store = rig.place.prepared().await;
        // They all have the same manifest.
        let accepted = FakePlugin::named("any").start().await.accepted();
        let objects = plugins.iter().flat_map(|spec| {
            let mut spec = spec.clone();
            spec["accepted"] = accepted.clone();
            let name = spec["name"].as_str().unwrap().to_owned();
            let name = name.as_str();
            let binding = json!({ "name": name, "plugin": name, "tenant": name, "priority": 1 });
            let tenant = json!({ "id": name });
            let objects = [
                (ObjectKind::Plugin, spec.clone()),
                (ObjectKind::Tenant, tenant),
                (ObjectKind::Binding, binding),
            ];
            objects.map(|(kind, spec)| change(kind, name, None, api(spec)))
        });
        let mut objects: Vec<_> = objects.collect();
        objects.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        store.commit(&draft(0, objects)).await.unwrap();
        store.close().await;
        rig
    }

    /// Its gateway, with `reach` as `egress`.
    fn gateway(&self, reach: &Value) -> Setup {
        let last_good = self.path("last-good.json").display().to_string();
        Gateway::with()
            .set("/store", json!({ "url": self.place.url, "last_good": last_good }))
            .set("/egress", reach.clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn reason(plugin: &str, reason: &str) -> impl Fn(&Line) -> bool {
    move |line| {
        line.field("event") == Some(&json!("plugin.health_failed"))
            && line.field("plugin") == Some(&json!(plugin))
            && line.field("reason") == Some(&json!(reason))
    }
}

async fn call(gateway: &Gateway, tenant: &str) -> u16 {
    gateway.http(&token(tenant)).call(POINT, payload()).await.status
}

/// Waits until the plugin's step passes. Only calls show that the table with its manifest is active.
async fn served(gateway: &Gateway, tenant: &str) {
    let served = async { while call(gateway, tenant).await != 200 {} };
    timeout(PATIENCE, served)
        .await
        .unwrap_or_else(|_| panic!("{tenant} is never served:\n{}", gateway.log()));
}

#[tokio::test]
async fn plugins_of_the_api_are_dialled_where_they_are_listed_and_nowhere_else() {
    let at = |plugin: &FakePlugin, name: &str, from: &str, to: &str| json!({ "name": name, "endpoint": plugin.endpoint().replacen(from, to, 1) });
    let listed = FakePlugin::named("listed").start_at(([127, 0, 0, 2], 0).into()).await;
    let of_file = FakePlugin::named("of-file").start().await;
    let hidden = FakePlugin::named("hidden").start().await;
    let (host, scheme) = ("127.0.0.1", "http://127.0.0.1");
    let barred = [
        at(&hidden, "address", "", ""),
        at(&hidden, "mapped", host, "[::ffff:127.0.0.1]"),
        // The system's resolver reads the number as that address.
        at(&hidden, "number", host, "2130706433"),
        at(&hidden, "resolved", host, "localhost"),
        at(&hidden, "several", scheme, "dns:///localhost"),
    ];
    let specs = [&[at(&listed, "listed", "", "")][..], &barred].concat();
    let rig = Rig::with(&specs).await;
    let setup = rig.gateway(&json!({ "cidrs": ["127.0.0.2/32"] })).tenant("of-file").plugin(&of_file);
    let gateway = setup.binding_with("of-file", 1, &json!({ "tenant": "of-file" })).start().await;
    served(&gateway, "listed").await;
    assert_eq!(call(&gateway, "of-file").await, 200);
    for spec in &barred {
        let name = spec["name"].as_str().unwrap();
        let line = gateway.log().wait_for(reason(name, "not_permitted")).await;
        assert!(line.text.contains("egress.cidrs"), "it says what to mend: {line:?}");
        assert_eq!(call(&gateway, name).await, 503, "{name}");
    }
    assert_eq!(hidden.counts().connections, 0, "it was dialled");
    gateway.stop().await;

    // The same plugins, once their name is listed.
    hidden.change_manifest(|manifest| manifest.name = "resolved".into());
    let gateway = rig.gateway(&json!({ "names": ["localhost"] })).start().await;
    served(&gateway, "resolved").await;
    assert_eq!(call(&gateway, "listed").await, 503);
}

#[tokio::test]
async fn a_socket_is_dialled_in_a_listed_directory_and_not_through_a_link_out_of_it() {
    let inside = FakePlugin::named("inside").start_unix().await;
    let outside = FakePlugin::named("link").start_unix().await;
    let path = |plugin: &FakePlugin| PathBuf::from(plugin.endpoint().strip_prefix("unix://").unwrap());
    let dir = path(&inside).parent().unwrap().to_owned();
    let link = dir.join("link.sock");
    symlink(path(&outside), &link).unwrap();
    let up =
        format!("unix://{}/../{}", dir.display(), path(&outside).strip_prefix("/tmp").unwrap().display());
    let rig = Rig::with(&[
        json!({ "name": "inside", "endpoint": inside.endpoint() }),
        json!({ "name": "link", "endpoint": format!("unix://{}", link.display()) }),
        json!({ "name": "plain", "endpoint": outside.endpoint() }),
        json!({ "name": "up", "endpoint": up }),
    ])
    .await;
    let egress = json!({ "socket_dirs": [dir], "cidrs": ["0.0.0.0/0", "::/0"] });
    let gateway = rig.gateway(&egress).start().await;
    served(&gateway, "inside").await;
    for name in ["link", "plain", "up"] {
        let line = gateway.log().wait_for(reason(name, "not_permitted")).await;
        assert!(line.text.contains("egress.socket_dirs"), "{line:?}");
        assert_eq!(call(&gateway, name).await, 503, "{name}");
    }
    assert_eq!(outside.counts().connections, 0, "it was dialled");
}

/// Passes connections on, and reports how many are open.
async fn relay(to: &FakePlugin) -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let to = to.endpoint().strip_prefix("http://").unwrap().to_owned();
    let (open, watched) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let (open, to) = (open.clone(), to.clone());
            open.send_modify(|open| *open += 1);
            tokio::spawn(async move {
                let mut there = TcpStream::connect(to).await.unwrap();
                let _ = copy_bidirectional(&mut from, &mut there).await;
                open.send_modify(|open| *open -= 1);
            });
        }
    });
    (endpoint, watched)
}

/// Although it is required, it must not prevent the file from being applied.
#[tokio::test]
async fn a_plugin_outside_the_narrowed_egress_is_disconnected() {
    let guard = FakePlugin::named("guard").start().await;
    let (endpoint, mut open) = relay(&guard).await;
    let rig = Rig::with(&[json!({ "name": "guard", "endpoint": endpoint, "required": true })]).await;
    let with = |egress: Value| rig.gateway(&egress);
    let gateway = with(json!({ "cidrs": ["127.0.0.1"] })).start().await;
    assert_eq!(call(&gateway, "guard").await, 200);
    assert!(*open.borrow() > 0);

    gateway.reload(&with(json!({ "cidrs": ["127.0.0.2"] })));
    gateway.log().wait_for(reason("guard", "not_permitted")).await;
    timeout(PATIENCE, open.wait_for(|open| *open == 0)).await.expect("its connections end").unwrap();
    assert_eq!(call(&gateway, "guard").await, 503);
    let before = guard.counts();
    assert_eq!(before.calls, 1);

    gateway.reload(&with(json!({ "cidrs": ["127.0.0.0/8"] })));
    guard.wait_until(|now| now.initializes > before.initializes).await;
    timeout(PATIENCE, open.wait_for(|open| *open > 0)).await.expect("it is dialled again").unwrap();
}

#[tokio::test]
async fn references_of_the_api_are_resolved_where_they_may_be_and_never_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (secrets, elsewhere) = (folder.path().join("secrets"), folder.path().join("elsewhere"));
    fs::create_dir(&secrets).unwrap();
    fs::write(&elsewhere, CANARY).unwrap();
    fs::write(secrets.join("own"), "from a file\n").unwrap();
    symlink(&elsewhere, secrets.join("link")).unwrap();
    let file = |path: PathBuf| format!("${{file:{}}}", path.display());
    let good = FakePlugin::named("good").start().await;
    let bad = [
        ("variable", "${CANARY}".to_owned()),
        ("default", "${CANARY:-x}".to_owned()),
        ("file", file(elsewhere.clone())),
        ("up", file(secrets.join("../elsewhere"))),
        ("link", file(secrets.join("link"))),
    ];
    let mut specs = vec![json!({
        "name": "good",
        "endpoint": good.endpoint(),
        "config": { "a": "${HOOKGATE_SECRET_A}", "b": "${HOOKGATE_SECRET_B:-b}", "c": file(secrets.join("own")) },
    })];
    let mut plugins = Vec::new();
    for (name, text) in &bad {
        let plugin = FakePlugin::named(name).start().await;
        specs.push(json!({ "name": name, "endpoint": plugin.endpoint(), "config": { "key": text } }));
        plugins.push(plugin);
    }
    let rig = Rig::with(&specs).await;
    let egress = json!({ "cidrs": ["127.0.0.1"] });
    let setup = rig.gateway(&egress).set("/secrets", json!({ "dir": secrets }));
    let setup = setup.environment("CANARY", CANARY).environment("HOOKGATE_SECRET_A", "from a variable");
    let gateway = setup.start().await;
    good.wait_until(|counts| counts.initializes == 1).await;
    let config: Value = serde_json::from_slice(&good.initialized()[0].config).unwrap();
    assert_eq!(config, json!({ "a": "from a variable", "b": "b", "c": "from a file" }));
    for (name, _) in &bad {
        let told = |line: &Line| {
            line.field("plugin") == Some(&json!(name))
                && matches!(
                    line.field("reason").and_then(Value::as_str),
                    Some("not_permitted" | "CONFIG_REFUSED")
                )
        };
        let line = gateway.log().wait_for(told).await;
        assert!(line.text.contains("HOOKGATE_SECRET_*") && line.text.contains("secrets.dir"), "{line:?}");
        assert_eq!(call(&gateway, name).await, 503, "{name}");
    }
    assert!(plugins.iter().all(|plugin| plugin.initialized().is_empty()), "{plugins:?}");
    assert!(!gateway.log().to_string().contains(CANARY), "{}", gateway.log());
}

#[tokio::test]
async fn certificates_of_the_api_are_read_below_the_directory_of_secrets_alone() {
    let (ca, secrets) = (Ca::new(), tempfile::tempdir().unwrap());
    let inside = secrets.path().join("ca.pem");
    fs::copy(ca.file(), &inside).unwrap();
    let good = FakePlugin::named("good").start_tls(&ca).await;
    let bad = FakePlugin::named("bad").start_tls(&ca).await;
    let rig = Rig::with(&[
        json!({ "name": "good", "endpoint": good.endpoint(), "tls": { "ca_file": inside } }),
        json!({ "name": "bad", "endpoint": bad.endpoint(), "tls": { "ca_file": ca.file() } }),
    ])
    .await;
    let dir = json!({ "dir": secrets.path() });
    let setup = rig.gateway(&json!({ "cidrs": ["127.0.0.1"] })).set("/secrets", dir);
    let gateway = setup.start().await;
    served(&gateway, "good").await;
    let line = gateway.log().wait_for(reason("bad", "not_permitted")).await;
    assert!(line.text.contains("secrets.dir"), "{line:?}");
    assert_eq!(call(&gateway, "bad").await, 503);
    assert_eq!(bad.counts().connections, 0);
}
