//! Plugins that break the protocol, over raw HTTP/2. Each causes a failed step with its reason, and no call
//! is repeated once the plugin has seen it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message as _;

use super::support::*;
use crate::{
    config,
    core::{failure::Failure, step::Reason},
};

const SECOND: Duration = Duration::from_secs(1);

fn trailers(entries: &[(&'static str, String)]) -> HeaderMap {
    let entry = |(name, value): &(&'static str, String)| {
        (HeaderName::from_static(name), HeaderValue::try_from(value.clone()).expect("a value"))
    };
    entries.iter().map(entry).collect()
}

fn ok() -> HeaderMap {
    trailers(&[("grpc-status", "0".into())])
}

/// Calls a plugin that answers with `answer`. Returns the failure, and how often the plugin was called.
async fn call_raw<F>(answer: impl Fn(RawStream) -> F + Send + Sync + 'static) -> (Failure, usize)
where
    F: Future<Output = ()> + Send + 'static,
{
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let place = Place::new(Wire::Tcp);
    let _running = place.start_raw(Arc::new(move |_, respond| {
        count.fetch_add(1, Ordering::SeqCst);
        Box::pin(answer(respond))
    }));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    let failure = client.tool_call(SECOND).await.expect_err("a lie");
    (failure, executions.load(Ordering::SeqCst))
}

/// A reply of these frames after valid headers.
async fn reply(mut respond: RawStream, data: Vec<Bytes>, end: Option<HeaderMap>) {
    let mut body = respond.send_response(raw_head(), false).expect("an open stream");
    for data in data {
        body.send_data(data, false).expect("an open stream");
    }
    match end {
        Some(trailers) => body.send_trailers(trailers).expect("an open stream"),
        None => body.send_data(Bytes::new(), true).expect("an open stream"),
    }
}

#[tokio::test]
async fn reply_that_breaks_the_framing_is_a_bad_reply() {
    let whole = || raw_frame(&go_on().encode_to_vec());
    let cases: Vec<(&str, Vec<Bytes>, Option<HeaderMap>)> = vec![
        ("no trailers", vec![whole()], None),
        ("half a message", vec![raw_frame(&[0; 100]).slice(..50)], Some(ok())),
        ("no message", vec![], Some(ok())),
        ("two messages", vec![whole(), whole()], Some(ok())),
        ("compressed", vec![Bytes::from_static(&[1, 0, 0, 0, 0])], Some(ok())),
        ("no status", vec![whole()], Some(trailers(&[("x", "y".into())]))),
    ];
    for (what, data, end) in cases {
        let (failure, executions) = call_raw(move |respond| reply(respond, data.clone(), end.clone())).await;
        assert_eq!((failure.reason, executions), (Reason::BadReply, 1), "{what}: {failure}");
    }
}

#[tokio::test]
async fn reply_over_the_limit_is_too_large() {
    // The announced length alone decides, without waiting for the rest.
    let announced = Bytes::from_static(&[0, 0, 0x60, 0, 0]);
    let (failure, executions) = call_raw(move |mut respond| {
        let announced = announced.clone();
        async move {
            let mut body = respond.send_response(raw_head(), false).expect("an open stream");
            body.send_data(announced, false).expect("an open stream");
            std::future::pending::<()>().await;
        }
    })
    .await;
    assert_eq!((failure.reason, executions), (Reason::TooLarge, 1), "{failure}");

    // Complete replies from a real server, just within the limit and just beyond.
    let limits = config::Limits::default();
    let most = usize::try_from(limits.request.0 + limits.notice_bytes.0).expect("fits") + (64 << 10);
    for (size, reason) in [(most - 64, None), (most + 1, Some(Reason::TooLarge))] {
        let script = Script::calling(move |_| async move {
            let notice =
                hookgate_proto::types::v1::Notice { message: "x".repeat(size), ..Default::default() };
            Ok(hookgate_proto::plugin::v1::BeforeToolCallResponse { notices: vec![notice], ..go_on() })
        });
        let place = Place::new(Wire::Unix);
        let _running = place.start(Process::new(&Arc::new(script)));
        let client = Client::new(&registered(place.endpoint()));
        client.until_ready().await;
        assert_eq!(client.tool_call(SOON).await.err().map(|failure| failure.reason), reason);
    }
}

/// Headers with values of this many bytes.
fn flood(headers: usize, value: usize) -> HeaderMap {
    let names = (0..headers).map(|number| HeaderName::try_from(format!("x-{number}")).expect("a name"));
    names.map(|name| (name, HeaderValue::try_from("x".repeat(value)).expect("a value"))).collect()
}

#[tokio::test]
async fn flood_of_trailers_without_a_status_is_a_bad_reply() {
    let (failure, executions) =
        call_raw(|respond| reply(respond, vec![raw_frame(&go_on().encode_to_vec())], Some(flood(40, 1000))))
            .await;
    assert_eq!((failure.reason, executions), (Reason::BadReply, 1), "{failure}");
}

#[tokio::test]
async fn status_with_a_message_of_any_length_fails_its_own_call_alone() {
    let long = Arc::new(AtomicUsize::new(0));
    let length = Arc::clone(&long);
    let script = Script::calling(move |_| {
        let length = length.load(Ordering::SeqCst);
        async move {
            if length > 0 {
                // Each byte takes three on the wire.
                return Err(tonic::Status::internal("é".repeat(length / 2)));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(go_on())
        }
    });
    let place = Place::new(Wire::Tcp);
    let script = Arc::new(script);
    let _running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    for length in [1_000, 10_000, 40_000, 200_000, 5 << 20] {
        let before = script.executions();
        long.store(0, Ordering::SeqCst);
        let others = join_all((0..4).map(|_| client.tool_call(SOON)));
        let poison = async {
            eventually("the others are under way", || script.executions() == before + 4).await;
            long.store(length, Ordering::SeqCst);
            client.tool_call(SOON).await.map(drop).expect_err("it answers with an error")
        };
        let (others, failure) = tokio::join!(others, poison);
        assert_eq!(
            (failure.reason, failure.status),
            (Reason::RpcError, Some(tonic::Code::Internal)),
            "{length}"
        );
        assert!(failure.detail.len() < 2_000, "{length}: the message is cut");
        others.into_iter().for_each(|reply| drop(reply.expect("its own answer")));
        assert_eq!(client.endpoints()[0].connections, 1, "{length}: on the one connection there is");
    }
}

#[tokio::test]
async fn reply_that_never_ends_is_a_timeout() {
    let (failure, executions) = call_raw(|mut respond| async move {
        let mut body = respond.send_response(raw_head(), false).expect("an open stream");
        body.send_data(raw_frame(&go_on().encode_to_vec()), false).expect("an open stream");
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!((failure.reason, executions), (Reason::Timeout, 1), "{failure}");
}

#[tokio::test]
async fn reply_followed_by_an_error_was_never_received() {
    let (failure, executions) = call_raw(|respond| {
        let ended = trailers(&[("grpc-status", "13".into()), ("grpc-message", "late%20regret".into())]);
        reply(respond, vec![raw_frame(&go_on().encode_to_vec())], Some(ended))
    })
    .await;
    assert_eq!((failure.reason, failure.status), (Reason::RpcError, Some(tonic::Code::Internal)));
    assert!(failure.detail.contains("late regret"), "{failure}");
    assert_eq!(executions, 1);
}

#[tokio::test]
async fn answer_that_is_no_grpc_is_told_by_its_http_status_or_type() {
    let (failure, _) = call_raw(|mut respond| async move {
        let page = http::Response::builder().status(503).body(()).expect("valid");
        respond.send_response(page, true).expect("an open stream");
    })
    .await;
    assert_eq!((failure.reason, failure.status), (Reason::RpcError, Some(tonic::Code::Unavailable)));
    let (failure, _) = call_raw(|mut respond| async move {
        let page = http::Response::builder().header("content-type", "text/html").body(()).expect("valid");
        respond.send_response(page, true).expect("an open stream");
    })
    .await;
    assert_eq!(failure.reason, Reason::BadReply, "{failure}");
}

#[tokio::test]
async fn plugin_that_resets_after_receiving_is_not_called_twice() {
    for (reset, status) in [
        (h2::Reason::INTERNAL_ERROR, tonic::Code::Internal),
        (h2::Reason::CANCEL, tonic::Code::Cancelled),
        (h2::Reason::ENHANCE_YOUR_CALM, tonic::Code::ResourceExhausted),
    ] {
        let (failure, executions) = call_raw(move |mut respond| async move {
            respond.send_reset(reset);
        })
        .await;
        assert_eq!((failure.reason, failure.status), (Reason::RpcError, Some(status)), "{failure}");
        assert_eq!(executions, 1);
    }
}

#[tokio::test]
async fn reply_that_is_broken_off_is_a_bad_reply() {
    let (failure, executions) = call_raw(|mut respond| async move {
        let mut body = respond.send_response(raw_head(), false).expect("an open stream");
        body.send_data(Bytes::from_static(&[0, 0, 0x40, 0, 0]), false).expect("an open stream");
        // More than the window: the rest can be sent only because the beginning was read.
        let mut sent = 0;
        while sent < 3 << 20 {
            body.reserve_capacity(64 << 10);
            let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await.expect("open").expect("open");
            body.send_data(vec![0; room].into(), false).expect("an open stream");
            sent += room;
        }
        body.send_reset(h2::Reason::INTERNAL_ERROR);
    })
    .await;
    assert_eq!((failure.reason, executions), (Reason::BadReply, 1), "{failure}");
}

#[tokio::test]
async fn plugin_that_dies_while_it_works_is_not_called_twice() {
    let (place, script) = (Place::new(Wire::Unix), Arc::new(Script::calling(|_| std::future::pending())));
    let running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    let call = client.tool_call(SOON);
    tokio::pin!(call);
    tokio::select! {
        result = &mut call => panic!("{result:?}"),
        () = eventually("the plugin is called", || script.executions() == 1) => {}
    }
    drop(running);
    let _again = place.start(Process::new(&script));
    let failure = call.await.expect_err("the plugin died");
    assert_eq!(
        (failure.reason, failure.status),
        (Reason::RpcError, Some(tonic::Code::Unavailable)),
        "{failure}"
    );
    client.until_ready().await;
    assert_eq!(script.executions(), 1);
}

#[tokio::test]
async fn refused_stream_is_tried_once_more() {
    for (refusals, executions) in [(1, 2), (2, 2)] {
        let place = Place::new(Wire::Tcp);
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let _running = place.start_raw(Arc::new(move |call, mut respond: RawStream| {
            count.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                if call < refusals {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                } else {
                    raw_message(respond, go_on().encode_to_vec()).await;
                }
            })
        }));
        let client = Client::new(&registered(place.endpoint()));
        client.until_ready().await;
        let result = client.tool_call(SECOND).await;
        assert_eq!(result.is_ok(), refusals == 1, "{result:?}");
        assert_eq!(calls.load(Ordering::SeqCst), executions);
    }
}
