//! Tests writes in flight at SIGTERM: every writer learns whether its write is in the registry (G26,
//! docs/registry.md).

use std::time::Duration;

use hookgate::{core::object::ObjectKind, store};
use hookgate_tests::{agent::HttpAgent, gateway::Gateway};
use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};

use crate::{
    admin::registry::support::{administrator, stored_as},
    cli::support::Folder,
    registry::support::file_with,
};

/// Concurrent writers over each of HTTP and gRPC.
const WRITERS: usize = 3;

/// The results of one writer's writes.
struct Came {
    answered: Vec<(String, u16)>,
    lost: Vec<String>,
}

/// Creates tenants one after another until the gateway is gone, and reports each answer to `told`.
async fn write_on(agent: HttpAgent, who: String, told: mpsc::UnboundedSender<()>) -> Came {
    let mut came = Came { answered: Vec::new(), lost: Vec::new() };
    for number in 0..10_000 {
        let id = format!("{who}-{number}");
        let request = agent.request(Method::PUT, &format!("/admin/v1/tenants/{id}?expected_version=0"));
        let request = request.header("content-type", "application/json").body(json!({}).to_string());
        match HttpAgent::send(request).await {
            Ok(answer) => {
                came.answered.push((id, answer.status));
                let _ = told.send(());
            }
            Err(error) if error.is_connect() => return came,
            Err(_) => came.lost.push(id),
        }
    }
    panic!("{who} is never hung up on")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_that_the_registry_took_at_sigterm_is_answered() {
    for round in 0..2 {
        let sockets = tempfile::tempdir().unwrap();
        let socket = sockets.path().join("admin.sock");
        let setup = file_with("acme").set("/server/admin_socket", socket.display().to_string());
        let it = stored_as(setup.set("/drain/grace", "300ms").set("/drain/finish", "1s")).await;
        let (told, mut answers) = mpsc::unbounded_channel();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let agent = it.gateway.admin(&administrator());
            writers.spawn(write_on(agent, format!("tcp{writer}"), told.clone()));
            writers.spawn(write_on(HttpAgent::over_socket(&socket), format!("unix{writer}"), told.clone()));
        }
        for _ in 0..4 * WRITERS {
            answers.recv().await.expect("they write");
        }
        let began = Instant::now();
        it.gateway.terminate();
        let exit = it.gateway.exited().await;
        assert_eq!(exit.code, Some(0), "{}", exit.log);
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        let came = writers.join_all().await;

        let url = format!("sqlite:{}", it.folder.path().join("hookgate.db").display());
        let held = store::open(&url).unwrap().snapshot().await.unwrap();
        let is_held =
            |id: &str| held.objects.iter().any(|of| of.kind == ObjectKind::Tenant && *of.name == *id);
        let lost: Vec<_> = came.iter().flat_map(|came| &came.lost).filter(|id| is_held(id)).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} were written without an answer\n{}", exit.log);
        for (id, status) in came.iter().flat_map(|came| &came.answered) {
            assert_eq!(*status == 201, is_held(id), "{id} was answered {status}");
            assert!(matches!(status, 201 | 503), "{id} was answered {status}");
        }
    }
}

#[tokio::test]
async fn a_last_good_table_that_can_not_be_kept_shows_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let away = folder.path().join("away");
    let file = away.join("last-good.json").display().to_string();
    let setup = file_with("acme").store(&url, folder.path()).set("/store/last_good", file.as_str());
    let gateway: Gateway = setup.start().await;
    let why = |status: &serde_json::Value| status["store"]["last_good_problem"].clone();
    let status = crate::registry::support::status_is(&gateway, |status| !why(status).is_null()).await;
    assert!(why(&status).as_str().is_some_and(|why| why.starts_with(&file)), "{status:#}");
    std::fs::create_dir(&away).unwrap();
    crate::registry::support::status_is(&gateway, |status| why(status).is_null()).await;
    assert!(std::fs::exists(&file).unwrap());
}

/// A gateway that exits before it answers a write.
#[tokio::test]
async fn the_command_line_reports_a_lost_answer_as_unknown() {
    let folder = Folder::new();
    let path = folder.0.path().join("admin.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let gateway = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.unwrap() == 0 {
                    break;
                }
            }
            if head.starts_with(b"GET ") {
                let body = r#"{"name":"guard","version":1,"spec":{"name":"guard"}}"#;
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}", body.len());
                stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
            }
        }
    });
    let address = format!("unix://{}", path.display());
    let env = [("HOOKGATE_ADMIN_ADDR", address.as_str())];
    let ran = folder.run_with(&["plugin", "disable", "guard"], &env, "").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("the write may have happened: check before"), "{ran:?}");
    let ran = folder.run_with(&["plugin", "show", "guard"], &env, "").await;
    assert_eq!(ran.code, Some(0), "what only looks is answered: {ran:?}");
    gateway.abort();
}
