//! Tests events over gRPC: recorded ones, and streams that are resumed, hold nothing up, and end with a
//! status.

use std::time::Duration;

use futures::future::join_all;
use hookgate::core::error::Code;
use hookgate_proto::{
    admin::v1::{
        self as wire, EventLevel, StreamEventsRequest, stream_events_request::Since,
        stream_events_response::What,
    },
    types::v1::NoticeKind,
};
use hookgate_tests::{
    agent::reason,
    fake::{Act, FakePlugin, notice},
    gateway::{Gateway, Setup},
    token::{Token, token},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Status, Streaming, transport::Endpoint};

use crate::{
    admin::{
        events_support::{events, wait_for},
        grpc::{
            rpcs::assert_code,
            support::{Client, client, dial, parsed, violations},
        },
    },
    edge::support::{POINT, payload},
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(25);

fn setup() -> Setup {
    Gateway::with().tenant("acme").tenant("globex").admin()
}

/// A plugin that blocks every call with a message of this many words.
async fn guard(words: usize) -> FakePlugin {
    let act = (0..words).fold(Act::cancel("NO", "no"), |act, _| {
        act.with_notice(notice(NoticeKind::Info, "N", &"no ".repeat(80), &json!({})))
    });
    FakePlugin::named("guard").at(POINT, act).start().await
}

fn blocks() -> StreamEventsRequest {
    StreamEventsRequest { follow: true, names: vec!["decision.*".into()], ..Default::default() }
}

fn after(id: &str) -> StreamEventsRequest {
    StreamEventsRequest { since: Some(Since::AfterId(id.into())), ..blocks() }
}

/// A stream of events.
pub(crate) struct EventSubscription(Streaming<wire::StreamEventsResponse>);

impl EventSubscription {
    /// From here on, it receives all events.
    pub(crate) async fn open(client: &mut Client, request: StreamEventsRequest) -> Self {
        let mut stream =
            EventSubscription(client.stream_events(request).await.expect("there is a place").into_inner());
        assert_eq!(stream.any().await, None, "it says at once that it follows");
        stream
    }

    async fn message(&mut self) -> Result<Option<wire::StreamEventsResponse>, Status> {
        timeout(PATIENCE, self.0.message()).await.expect("it goes on, or ends")
    }

    async fn any(&mut self) -> Option<What> {
        self.message().await.expect("no error").expect("it goes on").what
    }

    /// The next event or gap.
    pub(crate) async fn next(&mut self) -> What {
        loop {
            if let Some(what) = self.any().await {
                return what;
            }
        }
    }

    pub(crate) async fn event(&mut self) -> (wire::Event, Value) {
        match self.next().await {
            What::Event(event) => {
                let data = parsed(&event.event_json);
                assert_eq!((&data["id"], &data["event"]), (&json!(event.id), &json!(event.name)));
                (event, data)
            }
            gap => panic!("no event: {gap:?}"),
        }
    }

    /// The status at its end.
    async fn end(&mut self) -> Status {
        loop {
            match self.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ends as if that were all"),
                Err(status) => return status,
            }
        }
    }
}

/// All recorded events.
async fn kept(client: &mut Client, request: StreamEventsRequest) -> Vec<What> {
    let mut stream = client.stream_events(request).await.expect("it answers").into_inner();
    let mut all = Vec::new();
    while let Some(message) = timeout(PATIENCE, stream.message()).await.expect("it ends").expect("with OK") {
        all.push(message.what.expect("one that ends tells of nothing else"));
    }
    all
}

fn data(all: &[What]) -> Vec<Value> {
    let one = |what: &What| match what {
        What::Event(event) => parsed(&event.event_json),
        What::Dropped(gap) => panic!("nothing is gone: {gap:?}"),
    };
    all.iter().map(one).collect()
}

#[tokio::test]
async fn what_is_kept_is_what_http_shows_by_the_same_filters() {
    let plugin = guard(0).await;
    let gateway = setup().plugin(&plugin).binding("guard", 10).start().await;
    let (operator, bearer) = (gateway.admin(&Token::for_operators().mint()), Token::for_operators().mint());
    let mut client = dial(&gateway, &bearer).await;
    for tenant in ["acme", "globex", "acme"] {
        gateway.http(&token(tenant)).call(POINT, payload()).await;
    }
    wait_for(&operator, "event=decision.block", 3).await;
    let all = events(&operator, "").await;
    let first = all[1]["id"].as_str().expect("an id").to_owned();
    let named = |names: &[&str]| StreamEventsRequest {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..StreamEventsRequest::default()
    };
    let since = |since| StreamEventsRequest { since: Some(since), ..StreamEventsRequest::default() };
    for (request, query) in [
        (StreamEventsRequest::default(), String::new()),
        (
            StreamEventsRequest { tenant: Some("acme".into()), ..named(&["decision.*"]) },
            "event=decision.*&tenant=acme".into(),
        ),
        (named(&["plugin.connected", "table.*"]), "event=plugin.connected&event=table.*".into()),
        (StreamEventsRequest { plugin: Some("none".into()), ..Default::default() }, "plugin=none".into()),
        (StreamEventsRequest { level: EventLevel::Warn.into(), ..Default::default() }, "level=warn".into()),
        (StreamEventsRequest { level: EventLevel::Error.into(), ..Default::default() }, "level=error".into()),
        (StreamEventsRequest { limit: Some(2), ..Default::default() }, "limit=2".into()),
        (since(Since::AfterId(first.clone())), format!("since={first}")),
        (since(Since::AgoMs(600_000)), "since=10m".into()),
        (since(Since::AgoMs(0)), "since=0s".into()),
    ] {
        assert_eq!(data(&kept(&mut client, request).await), events(&operator, &query).await, "{query}");
    }
    let of_another = kept(&mut client, since(Since::AfterId("0123456789ab-1".into()))).await;
    assert_eq!(of_another[0], What::Dropped(wire::EventsDropped { count: None }));
    assert_eq!(data(&of_another[1..]), all);

    for (request, wrong) in [
        (StreamEventsRequest { limit: Some(0), ..Default::default() }, "/limit"),
        (StreamEventsRequest { limit: Some(1001), ..Default::default() }, "/limit"),
        (StreamEventsRequest { level: 9, ..Default::default() }, "/level"),
        (since(Since::AfterId("yesterday".into())), "/after_id"),
        (named(&[""]), "/names"),
        (named(&["[a"]), "/names"),
        (named(&["a"; 33]), "/names"),
    ] {
        let refused = assert_code(client.stream_events(request.clone()).await, Code::PayloadInvalid);
        assert_eq!(violations(&refused)[0]["pointer"], wrong, "{request:?}");
    }
}

#[tokio::test]
async fn a_stream_over_grpc_goes_on_after_its_last_event_and_tells_of_a_gap() {
    let mut plugin = guard(0).await;
    let gateway = setup().plugin(&plugin).binding("guard", 10).start().await;
    let mut client = dial(&gateway, &Token::for_operators().mint()).await;
    let agent = gateway.http(&token("acme"));
    let mut stream = EventSubscription::open(&mut client, blocks()).await;
    let mut of_plugins = EventSubscription::open(
        &mut client,
        StreamEventsRequest { names: vec!["plugin.*".into()], ..blocks() },
    )
    .await;
    let blocked = agent.call(POINT, payload()).await;
    let (first, said) = stream.event().await;
    assert_eq!((&*first.name, &said["request_id"]), ("decision.block", &blocked.body["request_id"]));
    drop(stream);
    let missed = agent.call(POINT, payload()).await;
    let mut again = EventSubscription::open(&mut client, after(&first.id)).await;
    assert_eq!(again.event().await.1["request_id"], missed.body["request_id"]);

    // An id of another process is unknown here.
    let mut other = EventSubscription::open(&mut client, after("0123456789ab-1")).await;
    assert_eq!(other.next().await, What::Dropped(wire::EventsDropped { count: None }));
    assert_eq!(other.event().await.0, first, "everything that is kept");

    plugin.stop().await;
    let (gone, said) = of_plugins.event().await;
    assert_eq!((&*gone.name, &said["plugin"]), ("plugin.disconnected", &json!("guard")));
}

#[tokio::test]
async fn a_slow_reader_over_grpc_delays_no_other_and_learns_what_it_missed() {
    let plugin = guard(10).await;
    let gateway = setup().plugin(&plugin).binding("guard", 10).start().await;
    let bearer = Token::for_operators().mint();
    let mut quick = EventSubscription::open(&mut dial(&gateway, &bearer).await, blocks()).await;
    let address = gateway.admin_addr().expect("the admin port is open");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    let narrow = endpoint.initial_stream_window_size(1 << 16).connect().await.expect("it listens");
    let mut slow = EventSubscription::open(&mut client(narrow, Some(&bearer)), blocks()).await;
    let agent = gateway.http(&token("acme"));
    // More than fits into the window (64 KiB) plus what is recorded beyond it (1,000).
    let most = 1600;
    for _ in 0..most / 8 {
        let calls = join_all((0..8).map(|_| agent.call(POINT, payload()))).await;
        assert!(calls.iter().all(|answer| answer.status == 403));
        for _ in 0..8 {
            assert_eq!(quick.event().await.0.name, "decision.block", "no reader waits for the slow one");
        }
    }
    let mut told = 0;
    let missed = loop {
        match slow.next().await {
            What::Event(_) => told += 1,
            What::Dropped(gap) => break gap.count.expect("operators may know"),
        }
        assert!(told < most, "there was no gap");
    };
    let mut rest = 0;
    while told + missed + rest < most {
        slow.event().await;
        rest += 1;
    }
    assert_eq!((missed > 0, rest), (true, 1000), "what is kept comes after the gap");
}

#[tokio::test]
async fn at_most_32_follow_whichever_way_and_who_leaves_makes_room() {
    let gateway = setup().start().await;
    let mut client = dial(&gateway, &Token::for_operators().mint()).await;
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(EventSubscription::open(&mut client, blocks()).await);
    }
    let status = assert_code(client.stream_events(blocks()).await, Code::Overloaded);
    assert!(tonic_types::StatusExt::get_details_retry_info(&status).is_some(), "{status:?}");
    let over_http = gateway.admin(&Token::for_operators().mint()).get("/admin/v1/events?follow=true").await;
    assert_eq!(over_http.expect("it answers").status, 503);
    kept(&mut client, StreamEventsRequest::default()).await; // still available
    streams.pop();
    // Only trying again shows that the gateway has noticed the closed stream.
    let open = async { while client.stream_events(blocks()).await.is_err() {} };
    timeout(PATIENCE, open).await.expect("a place is free again");
}

#[tokio::test]
async fn a_stream_over_grpc_ends_with_why_it_ends() {
    let setup = setup();
    let other_audience = setup.clone().set("/auth/issuers/0/admin_audience", "another").text();
    let gateway = setup.start().await;
    // Valid for a few more seconds: `exp` has passed, and the leeway of 30 s almost.
    let short = Token::for_operators().expiring_in(-20).mint();
    let mut short = EventSubscription::open(&mut dial(&gateway, &short).await, blocks()).await;
    let expired = short.end().await;
    assert_eq!(reason(&expired), (tonic::Code::Unauthenticated, Some("TOKEN_EXPIRED".into())), "{expired:?}");

    let bearer = Token::for_operators().mint();
    let mut refused = EventSubscription::open(&mut dial(&gateway, &bearer).await, blocks()).await;
    let mut left = EventSubscription::open(&mut dial(&gateway, &bearer).await, blocks()).await;
    let same = std::fs::read_to_string(gateway.file()).expect("it is there");
    std::fs::write(gateway.file(), other_audience).expect("there is room");
    gateway.wait_for_revision(2).await;
    let refused = refused.end().await;
    let code = (tonic::Code::Unauthenticated, Some("TOKEN_INVALID".into()));
    assert_eq!(reason(&refused), code, "{refused:?}");
    assert_eq!(reason(&left.end().await), code);

    std::fs::write(gateway.file(), same).expect("there is room");
    gateway.wait_for_revision(3).await;
    let mut last = EventSubscription::open(&mut dial(&gateway, &bearer).await, blocks()).await;
    let (exit, ended) = tokio::join!(gateway.stop(), last.end());
    assert_eq!(exit.code, Some(0));
    assert_eq!(reason(&ended), (tonic::Code::Unavailable, Some("DRAINING".into())), "{ended:?}");
}
