//! Tests an outage of the database: the active configuration stays, a start uses the last good table, and
//! without one nobody is served (G23).

use std::fs;

use hookgate::core::object::ObjectKind;
use hookgate_tests::{
    gateway::{Gateway, Setup},
    postgres::Cluster,
};
use serde_json::json;
use tempfile::TempDir;

use crate::registry::support::{Writer, call, file_with, serves_by, status, status_is, tenant};

/// A test's own server, its database, and a folder for last good tables.
struct Place {
    cluster: Cluster,
    url: String,
    folder: TempDir,
}

impl Place {
    async fn make() -> Self {
        let cluster = tokio::task::spawn_blocking(Cluster::start).await.expect("it starts");
        let url = cluster.database().await;
        Place { cluster, url, folder: tempfile::tempdir().expect("there is room") }
    }

    fn setup(&self) -> Setup {
        file_with("acme").store(&self.url, self.folder.path())
    }

    fn last_good(&self) -> std::path::PathBuf {
        self.folder.path().join("last-good.json")
    }

    /// Serves a tenant of the API with a gateway, then stops the gateway and the database.
    async fn leave(&self) -> u64 {
        let gateway = self.setup().start().await;
        let written = Writer::open(&self.url).await.write(&[tenant("of-the-api", 1)]).await.expect("it runs");
        serves_by(&gateway, written).await;
        gateway.stop().await;
        self.cluster.stop();
        written
    }
}

#[tokio::test]
async fn calls_go_on_without_the_database_and_it_shows() {
    let place = Place::make().await;
    let gateway = place.setup().start().await;
    place.cluster.stop();
    let status = status_is(&gateway, |status| status["store"]["reachable"] == false).await;
    assert_eq!((&status["store"]["revision"], &status["store"]["stale"]), (&json!(1), &json!(false)));
    assert_eq!(call(&gateway, "acme").await.body["revision"], 1);
    assert_eq!(gateway.ops().get("/readyz").await.expect("it serves").status, 200);
    place.cluster.start_again();
    let written = Writer::open(&place.url).await.write(&[tenant("later", 1)]).await.expect("it runs");
    serves_by(&gateway, written).await;
    assert_eq!(call(&gateway, "later").await.status, 200);
}

#[tokio::test]
async fn a_start_without_the_database_serves_the_last_good_table_marked_stale() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::make().await;
    let written = place.leave().await;
    let mode = fs::metadata(place.last_good()).expect("it was kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let gateway = place.setup().start().await;
    let answer = call(&gateway, "of-the-api").await;
    assert_eq!((answer.status, &answer.body["revision"]), (200, &json!(written)));
    assert_eq!(status(&gateway).await["store"]["stale"], true);

    place.cluster.start_again();
    status_is(&gateway, |status| status["store"]["stale"] == false).await;
    let next = Writer::open(&place.url).await.write(&[tenant("later", 1)]).await.expect("it runs");
    serves_by(&gateway, next).await;
    assert_eq!(call(&gateway, "later").await.status, 200);
}

#[tokio::test]
async fn without_a_last_good_table_calls_are_refused_until_the_database_is_there() {
    let place = Place::make().await;
    place.leave().await;
    for broken in [None, Some("{\"format\":1}\nhalf"), Some("")] {
        match broken {
            Some(text) => fs::write(place.last_good(), text).expect("the folder is ours"),
            None => fs::remove_file(place.last_good()).expect("it was kept"),
        }
        let gateway = place.setup().start_unready().await;
        let answer = call(&gateway, "acme").await;
        assert_eq!((answer.status, &answer.body["code"]), (503, &json!("STORE_UNAVAILABLE")), "{broken:?}");
        assert!(answer.header("retry-after").is_some());
        let ready = gateway.ops().get("/readyz").await.expect("the process is up");
        assert_eq!(ready.status, 503);
        assert!(ready.text.contains("the store can't be reached"), "{}", ready.text);
        gateway.stop().await;
    }
    let gateway = place.setup().start_unready().await;
    place.cluster.start_again();
    gateway.wait_until_ready().await;
    assert_eq!(call(&gateway, "of-the-api").await.status, 200);
}

#[tokio::test]
async fn a_last_good_table_that_was_changed_by_hand_is_not_used() {
    let place = Place::make().await;
    place.leave().await;
    let text = fs::read_to_string(place.last_good()).expect("it was kept");
    fs::write(place.last_good(), text.replace("of-the-api", "by-someone")).expect("the folder is ours");
    let gateway = place.setup().start_unready().await;
    assert_eq!(call(&gateway, "by-someone").await.body["code"], "STORE_UNAVAILABLE");
}

#[tokio::test]
async fn a_file_that_changes_while_the_database_is_away_is_written_when_it_is_back() {
    let place = Place::make().await;
    let gateway = place.setup().start().await;
    place.cluster.stop();
    gateway.reload(&file_with("globex").store(&place.url, place.folder.path()));
    status_is(&gateway, |status| !status["configuration"]["rejected"].is_null()).await;
    assert_eq!(call(&gateway, "acme").await.status, 200);
    place.cluster.start_again();
    serves_by(&gateway, 2).await;
    assert_eq!(call(&gateway, "globex").await.status, 200);
    // The table is active shortly before the status says so.
    status_is(&gateway, |status| status["configuration"]["rejected"].is_null()).await;
}

#[tokio::test]
async fn a_broken_plugin_of_the_api_holds_no_start_up() {
    let place = Place::make().await;
    let plugin = json!({ "name": "away", "endpoint": "unix:///nowhere/at/all.sock" });
    let binding = json!({ "name": "away", "plugin": "away", "tenant": "*", "priority": 5 });
    let writer = Writer::open(&place.url).await;
    let wishes = [(ObjectKind::Plugin, "away", Some(plugin)), (ObjectKind::Binding, "away", Some(binding))];
    writer.write(&wishes).await.expect("it runs");
    let gateway: Gateway = place.setup().start().await;
    let answer = call(&gateway, "acme").await;
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")), "{answer:?}");
}
