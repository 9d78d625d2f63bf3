//! Tests events for operators: recorded ones and streams. Slow readers hold nothing up, and no tenant sees
//! another's events.

use std::time::Duration;

use futures::future::join_all;
use hookgate::core::error::Code;
use hookgate_proto::types::v1::NoticeKind;
use hookgate_tests::{
    agent::HttpAgent,
    fake::{Act, FakePlugin, notice},
    gateway::{Gateway, Setup, binary},
    openapi::Port,
    port::ReservedPort,
    token::{SECRET, Token, token},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

use crate::{
    admin::events_support::{Stream, events, names, wait_for},
    edge::support::{POINT, assert_http_error, payload},
};

fn setup() -> Setup {
    Gateway::with().tenant("acme").tenant("globex").admin()
}

fn operator(gateway: &Gateway) -> HttpAgent {
    gateway.admin(&Token::for_operators().mint())
}

#[tokio::test]
async fn a_plugin_that_goes_and_comes_back_is_told_at_once_and_kept() {
    let mut guard = FakePlugin::named("guard").start().await;
    let other = FakePlugin::named("other").start().await;
    let setup = setup().plugin(&guard).plugin(&other).binding("guard", 10).binding("other", 20);
    let gateway = setup.start().await;
    let operator = operator(&gateway);
    let mut stream = Stream::open(&operator, "event=plugin.*&plugin=guard").await;
    guard.stop().await;
    let gone = stream.next_named("plugin.disconnected").await;
    guard.start().await;
    let back = stream.next_named("plugin.connected").await;
    for (sent, level) in [(&gone, "WARN"), (&back, "INFO")] {
        assert_eq!(sent.id.as_deref(), sent.data["id"].as_str(), "{sent:?}");
        assert_eq!((&sent.data["plugin"], &sent.data["level"]), (&json!("guard"), &json!(level)));
    }
    // An event is its log line with an id.
    let line =
        gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.disconnected"))).await;
    let mut logged: Value = serde_json::from_str(&line.text).unwrap();
    logged["id"] = gone.data["id"].clone();
    logged["timestamp"] = gone.data["timestamp"].clone();
    assert_eq!(logged, gone.data);

    let kept = events(&operator, "plugin=guard").await;
    let ids: Vec<_> = kept.iter().map(|event| event["id"].clone()).collect();
    assert!(ids.contains(&gone.data["id"]) && ids.contains(&back.data["id"]), "{kept:?}");
    assert_eq!(names(&kept)[..2], ["plugin.registered", "plugin.connected"]);
}

#[tokio::test]
async fn events_do_not_depend_on_the_level_of_the_log() {
    let guard = FakePlugin::named("guard").at(POINT, Act::cancel("NO", "not today")).start().await;
    let ports = [(); 3].map(|()| ReservedPort::new().unwrap());
    let [data, ops, admin] = ports.each_ref().map(|port| port.address().to_string());
    let setup = setup().plugin(&guard).binding("guard", 10).set("/log/level", "error");
    let setup = setup.set("/server/data_addr", data.clone()).set("/server/ops_addr", ops.clone());
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("hookgate.yaml"), folder.path().join("log"));
    std::fs::write(&file, setup.set("/server/admin_addr", admin.clone()).text()).unwrap();
    // Not started by the harness, which finds the ports in a line of level info.
    let _gateway = tokio::process::Command::new(tokio::task::spawn_blocking(binary).await.unwrap())
        .args(["serve", "--config"])
        .arg(&file)
        .stderr(std::fs::File::create(&log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let ops = HttpAgent::new(ops.parse().unwrap()).of(Port::Ops);
    let ready = async { while !ops.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {} };
    tokio::time::timeout(Duration::from_secs(20), ready).await.expect("it is ready");
    let operator = HttpAgent::new(admin.parse().unwrap()).of(Port::Admin);
    let operator = operator.with_token(&Token::for_operators().mint());
    let mut stream = Stream::open(&operator, "").await;
    let agent = HttpAgent::new(data.parse().unwrap()).with_token(&token("acme"));
    let answer = agent.call(POINT, payload()).await;
    let sent = stream.next_named("decision.block").await;
    assert_eq!(sent.data["request_id"], answer.body["request_id"]);
    assert_eq!(sent.data["steps"][0]["outcome"], "cancelled", "JSON, not text");
    let kept = events(&operator, "").await;
    for name in ["plugin.registered", "plugin.initialized", "table.published", "decision.block"] {
        assert!(names(&kept).contains(&name), "{name}: {kept:?}");
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "", "the log has none of them");
}

#[tokio::test]
async fn what_is_asked_for_is_what_comes() {
    let guard = FakePlugin::named("guard").at(POINT, Act::cancel("NO", "not today")).start().await;
    let gateway = setup().plugin(&guard).binding("guard", 10).start().await;
    for tenant in ["acme", "globex", "acme"] {
        gateway.http(&token(tenant)).call(POINT, payload()).await;
    }
    let operator = operator(&gateway);
    wait_for(&operator, "event=decision.block", 3).await;
    assert_eq!(events(&operator, "event=decision.*&tenant=acme").await.len(), 2);
    assert_eq!(events(&operator, "event=decision.*&tenant=acme&limit=1").await.len(), 1);
    assert_eq!(events(&operator, "event=plugin.connected&event=table.*").await.len(), 2);
    assert_eq!(events(&operator, "plugin=none").await, Vec::<Value>::new());
    assert_eq!(events(&operator, "level=error").await, Vec::<Value>::new());
    let warned = events(&operator, "level=warn").await;
    assert!(
        warned.iter().all(|event| event["level"] == "WARN") && !names(&warned).contains(&"table.published")
    );

    let all = events(&operator, "").await;
    let last = events(&operator, "limit=2").await;
    assert_eq!(last, all[all.len() - 2..], "the last ones, oldest first");
    let since = all[1]["id"].as_str().unwrap();
    assert_eq!(events(&operator, &format!("since={since}")).await, all[2..]);
    assert_eq!(events(&operator, "since=10m").await, all);
    assert_eq!(events(&operator, "since=0s").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_wrong_question_is_refused_by_the_name_of_what_is_wrong() {
    let gateway = setup().start().await;
    let operator = operator(&gateway);
    for (query, named) in [
        ("colour=red", "`colour`"),
        ("limit=0", "`limit`"),
        ("limit=1001", "`limit`"),
        ("limit=5&limit=6", "`limit`"),
        ("level=debug", "`level`"),
        ("since=yesterday", "`since`"),
        ("since=abc-1", "`since`"),
        ("follow=yes", "`follow`"),
        ("event=", "`event`"),
        ("event=%5Ba", "`event`"),
        ("plugin=%ff", "UTF-8"),
    ] {
        let answer = operator.get(&format!("/admin/v1/events?{query}")).await.unwrap();
        assert_http_error(&answer, Code::PayloadInvalid);
        assert!(answer.body["detail"].as_str().unwrap().contains(named), "{query}: {answer:?}");
    }
    let request = operator.request(http::Method::GET, "/admin/v1/events?follow=true");
    let answer = HttpAgent::send(request.header("last-event-id", "7")).await.unwrap();
    assert_http_error(&answer, Code::PayloadInvalid);
    assert!(answer.body["detail"].as_str().unwrap().contains("`last-event-id`"), "{answer:?}");
    let request = operator.request(http::Method::GET, "/admin/v1/events?follow=true");
    let twice = request.header("last-event-id", "a-1").header("last-event-id", "a-2");
    let answer = HttpAgent::send(twice).await.unwrap();
    assert_http_error(&answer, Code::PayloadInvalid);
    assert!(answer.body["detail"].as_str().unwrap().contains("must be sent once"), "{answer:?}");
}

#[tokio::test]
async fn a_stream_that_was_cut_off_goes_on_after_its_last_event_and_a_gap_is_told() {
    let guard = FakePlugin::named("guard").at(POINT, Act::cancel("NO", "not today")).start().await;
    let gateway = setup().plugin(&guard).binding("guard", 10).start().await;
    let (operator, agent) = (operator(&gateway), gateway.http(&token("acme")));
    let mut stream = Stream::open(&operator, "event=decision.*").await;
    agent.call(POINT, payload()).await;
    let first = stream.next().await;
    drop(stream);
    let missed = agent.call(POINT, payload()).await;
    let mut again = Stream::after(&operator, "event=decision.*", first.id.as_deref().unwrap()).await;
    let sent = again.next().await;
    assert_eq!(
        (sent.name.as_str(), &sent.data["request_id"]),
        ("decision.block", &missed.body["request_id"])
    );

    // More than is recorded, so the same query finds a gap.
    for _ in 0..1001 {
        agent.call(POINT, payload()).await;
    }
    let mut late = Stream::after(&operator, "event=decision.*", first.id.as_deref().unwrap()).await;
    let gap = late.next().await;
    assert_eq!((gap.name.as_str(), gap.id, gap.data), ("events.dropped", None, json!({})));
    assert_eq!(late.next().await.name, "decision.block");
    let answer = operator.get(&format!("/admin/v1/events?since={}", first.id.unwrap())).await.unwrap();
    assert_eq!(
        (&answer.body["dropped"], answer.body["events"].as_array().unwrap().len()),
        (&json!(true), 1000)
    );
    // Calls displace only calls.
    assert!(names(&events(&operator, "event=plugin.*").await).contains(&"plugin.registered"));

    // An id of another process is unknown here.
    let mut other = Stream::after(&operator, "event=table.*", "0123456789ab-1").await;
    assert_eq!(
        (other.next().await.name, other.next().await.name),
        ("events.dropped".into(), "table.published".into())
    );
}

#[tokio::test]
async fn a_slow_reader_delays_no_other_and_learns_what_it_missed() {
    let remark = || notice(NoticeKind::Info, "N", &"no ".repeat(80), &json!({}));
    let talkative = (0..10).fold(Act::cancel("NO", "no"), |act, _| act.with_notice(remark()));
    let guard = FakePlugin::named("guard").at(POINT, talkative).start().await;
    let gateway = setup().plugin(&guard).binding("guard", 10).start().await;
    let (operator, agent) = (operator(&gateway), gateway.http(&token("acme")));
    let mut quick = Stream::open(&operator, "event=decision.*").await;
    let slow = TcpSocket::new_v4().unwrap();
    slow.set_recv_buffer_size(4096).unwrap();
    let mut slow = slow.connect(gateway.admin_addr().unwrap()).await.unwrap();
    let token = Token::for_operators().mint();
    let head = format!(
        "GET /admin/v1/events?follow=true HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    slow.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    // More than the sender buffers (4 MB) plus what is recorded beyond it (1,000). Not many more: a client that takes
    // nothing for 30 s may be disconnected.
    let most = 2400;
    for _ in 0..most / 8 {
        let calls = join_all((0..8).map(|_| agent.call(POINT, payload()))).await;
        assert!(calls.iter().all(|answer| answer.status == 403));
        for _ in 0..8 {
            assert_eq!(quick.next().await.name, "decision.block", "no reader waits for the slow one");
        }
    }
    let mut told = String::new();
    let mut buffer = vec![0; 1 << 16];
    // The whole event: a read may end in the middle of it.
    let gap = |told: &str| {
        let (_, after) = told.split_once("event: events.dropped\ndata: ")?;
        Some(after.split_once("\n\n")?.0.to_owned())
    };
    let gap = loop {
        if let Some(gap) = gap(&told) {
            break gap;
        }
        let read = tokio::time::timeout(Duration::from_secs(20), slow.read(&mut buffer)).await;
        let read = read.expect("the gap is told").unwrap();
        assert!(read > 0, "it was hung up on");
        told.push_str(&String::from_utf8_lossy(&buffer[..read]));
    };
    let count: Value = serde_json::from_str(&gap).unwrap();
    assert!(count["count"].as_u64().is_some_and(|count| (1..most).contains(&count)), "{count}");
}

#[tokio::test]
async fn at_most_32_follow_and_who_leaves_makes_room() {
    let gateway = setup().start().await;
    let operator = operator(&gateway);
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(Stream::open(&operator, "").await);
    }
    let answer = operator.get("/admin/v1/events?follow=true").await.unwrap();
    assert_http_error(&answer, Code::Overloaded);
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    events(&operator, "").await; // recorded events are still available
    streams.pop();
    // Only trying again shows that the gateway has noticed the closed stream.
    let open = async { while Stream::try_open(&operator, "").await.is_none() {} };
    tokio::time::timeout(Duration::from_secs(20), open).await.expect("a place is free again");
}

#[tokio::test]
async fn a_token_that_names_a_tenant_sees_that_tenants_calls_and_nothing_of_the_operators() {
    const CANARY: &str = "canary-of-globex";
    let mut guard = FakePlugin::named("guard").start().await;
    guard.set_with(POINT, |seen| {
        let tenant = seen.call.context.as_ref().map(|context| context.tenant.clone()).unwrap_or_default();
        Act::cancel("NO", if tenant == "globex" { CANARY } else { "words for acme" })
    });
    let gateway = setup().plugin_without_breaker(&guard).binding("guard", 10).start().await;
    let mine = Token::for_operators().claim("tenant_id", "acme").scopes("hookgate:admin").mint();
    let tenant = gateway.admin(&mine);
    let mut stream = Stream::open(&tenant, "").await;
    let blocked = gateway.http(&token("globex")).call(POINT, payload()).await;
    assert_eq!(blocked.status, 403);
    let mine = gateway.http(&token("acme")).call(POINT, payload()).await;
    let first = stream.next().await;
    assert_eq!(
        first.data["request_id"], mine.body["request_id"],
        "the other one's is as if absent: {first:?}"
    );
    assert_eq!(first.data["detail"], "words for acme");
    guard.stop().await;
    let failed = gateway.http(&token("acme")).call(POINT, payload()).await;
    let second = stream.next().await;
    assert_eq!(
        (second.name.as_str(), &second.data["request_id"]),
        ("decision.error", &failed.body["request_id"])
    );
    for hidden in ["detail", "steps", "notices", "operator", "reason"] {
        assert!(second.data.get(hidden).is_none(), "{hidden} is shown: {second:?}");
    }
    let kept = events(&tenant, "").await;
    assert_eq!(names(&kept), ["decision.block", "decision.error"]);
    assert!(!format!("{kept:?}").contains(CANARY) && !format!("{kept:?}").contains("globex"), "{kept:?}");
    assert!(!format!("{kept:?}").contains(&guard.endpoint()), "{kept:?}");
    for query in ["tenant=globex", "plugin=guard&event=plugin.*", "event=table.*"] {
        assert_eq!(events(&tenant, query).await, Vec::<Value>::new(), "{query}");
    }
    let all = events(&operator(&gateway), "tenant=globex").await;
    assert!(format!("{all:?}").contains(CANARY), "there was something to hide");
    // Ids don't reveal how many other events there were in between.
    let ids: Vec<u64> = kept
        .iter()
        .map(|event| event["id"].as_str().unwrap().split_once('-').unwrap().1.parse().unwrap())
        .collect();
    assert!(ids.iter().all(|id| *id > 1_000_000_000_000_000), "{ids:?}");
}

#[tokio::test]
async fn the_end_of_the_process_and_of_the_token_end_the_stream_and_say_so() {
    let mut guard = FakePlugin::named("guard").start().await;
    let gateway = setup().plugin(&guard).binding("guard", 10).start().await;
    let operator = operator(&gateway);
    // Valid for a few more seconds: `exp` has passed, and the leeway of 30 s almost.
    let short = gateway.admin(&Token::for_operators().expiring_in(-20).mint());
    let mut short = Stream::open(&short, "event=none").await;
    let ended = short.next().await;
    assert_eq!((ended.name.as_str(), &ended.data), ("events.ended", &json!({ "reason": "token_expired" })));
    assert!(short.is_over().await);

    let mut stream = Stream::open(&operator, "event=plugin.*").await;
    let stopping = gateway.stop();
    let (exit, mut last) = tokio::join!(stopping, stream.rest());
    assert_eq!(exit.code, Some(0));
    let ended = last.pop().unwrap();
    assert_eq!((ended.name.as_str(), &ended.data), ("events.ended", &json!({ "reason": "draining" })));
    guard.stop().await;
}

#[tokio::test]
async fn no_secret_token_or_payload_is_in_any_event() {
    const PLUGIN_SECRET: &str = "canary-plugin-secret-events-5a";
    const PAYLOAD: &str = "canary-payload-events-9c";
    let schema = json!({ "type": "object", "properties": { "key": {} } });
    let guard = FakePlugin::named("guard").config_schema(schema).start().await;
    let gateway = setup()
        .plugin_with(&guard, &json!({ "config": { "key": "${CANARY}" } }))
        .binding("guard", 10)
        .environment("CANARY", PLUGIN_SECRET)
        .start()
        .await;
    let (operator, good) = (operator(&gateway), token("acme"));
    let mut stream = Stream::open(&operator, "").await;
    let forged = format!("{}x", &good[..good.len() - 2]);
    let secret = json!({ "tool_name": "fs.read", "args": { "path": PAYLOAD } });
    guard.set(POINT, Act::status(tonic::Code::Internal, &format!("my key is {PLUGIN_SECRET}")));
    gateway.http(&good).call(POINT, secret.clone()).await;
    gateway.http(&forged).call(POINT, secret.clone()).await;
    gateway.admin(&forged).get("/admin/v1/events").await.unwrap();
    let mut sent = String::new();
    for name in ["decision.error", "auth.refused", "auth.refused"] {
        sent.push_str(&format!("{:?}", stream.next_named(name).await));
    }
    let all = format!("{sent}{:?}", events(&operator, "").await);
    assert!(all.contains("my key is"), "the plugin's words are there: {all}");
    let signatures = [&good, &forged].map(|token| token.rsplit('.').next().unwrap());
    for canary in [PLUGIN_SECRET, PAYLOAD, SECRET].into_iter().chain(signatures) {
        assert!(!all.contains(canary), "{canary} is in an event: {all}");
    }
}
