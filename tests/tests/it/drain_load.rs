//! SIGTERM under load (G26): readiness goes first, service goes on, and no call that was begun before GOAWAY fails.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hookgate_tests::{
    agent::{HttpAgent, path},
    fake::{Act, FakePlugin},
    gateway::{Gateway, Line},
    token::token,
};
use serde_json::json;
use tokio::sync::watch;

use super::edge_support::{POINT, payload, request};

const WORKERS: usize = 12;

/// Seconds of the day: all that is compared here lies within seconds.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() % 86_400.0
}

/// When a line was written: `2026-11-22T01:33:05.604358Z`.
fn written(line: &Line) -> f64 {
    let text = line.field("timestamp").and_then(|time| time.as_str()).expect("lines have a time");
    let (_, time) = text.trim_end_matches('Z').split_once('T').expect("a date and a time");
    time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().expect("digits"))
}

/// A call that a worker made: when it began, and what went wrong.
type Made = (f64, Result<(), String>);

/// What the client never sent, because its connection was told to go meanwhile. On a busy machine that can be a while
/// after the call began.
const UNSENT: &str = "the client did not send it";

fn wrong(status: &tonic::Status) -> String {
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(error) = source {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return UNSENT.into();
        }
        source = error.source();
    }
    format!("{status:?}")
}

/// Calls one after another until one fails or the gateway has ended.
async fn work(mut ended: watch::Receiver<bool>, call: impl AsyncFn() -> Result<(), String>) -> Vec<Made> {
    let mut made = Vec::new();
    while !*ended.borrow_and_update() {
        let began = now();
        let result = call().await;
        let failed = result.is_err();
        made.push((began, result));
        if failed {
            break;
        }
    }
    made
}

async fn over_http(agent: &HttpAgent) -> Result<(), String> {
    let request = agent.request(http::Method::POST, path(POINT)).header("content-type", "application/json");
    let answer = HttpAgent::send(request.body(json!({ "payload": payload() }).to_string())).await;
    match answer {
        Ok(answer) if answer.status == 200 => Ok(()),
        Ok(answer) => Err(format!("{answer:?}")),
        Err(error) => Err(format!("{error:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_begun_before_goaway_fails_and_service_goes_on_until_then() {
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().after(Duration::from_millis(3)));
    let plugin = plugin.start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("slow", 10);
    let gateway = Arc::new(gateway.set("/drain/grace", "600ms").start().await);
    let ended = watch::Sender::new(false);
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (agent, ended) = (gateway.http(&token("acme")), ended.subscribe());
        if worker % 3 == 0 {
            let client = gateway.grpc(&token("acme")).await.client;
            let call = async move || {
                let answer = client.clone().before_tool_call(request()).await;
                answer.map(drop).map_err(|status| wrong(&status))
            };
            workers.push(tokio::spawn(async move { work(ended, call).await }));
        } else {
            let call = async move || over_http(&agent).await;
            workers.push(tokio::spawn(async move { work(ended, call).await }));
        }
    }
    plugin.wait_until(|counts| counts.calls > 200).await;
    gateway.terminate();
    let draining = gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    assert_eq!(gateway.ops().get("/readyz").await.unwrap().status, 503);
    let goaway = gateway.log().wait_for(|line| line.message() == Some("no more calls are taken")).await;
    let exit = gateway.exited().await;
    ended.send_replace(true);
    let (draining, goaway) = (written(&draining), written(&goaway));
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    for worker in workers {
        let made = worker.await.unwrap();
        let (before, after): (Vec<_>, Vec<_>) = made.into_iter().partition(|(began, _)| *began < goaway);
        let lost = before.iter().filter_map(|(began, made)| Some((goaway - began, made.as_ref().err()?)));
        let lost: Vec<_> = lost.filter(|(_, wrong)| *wrong != UNSENT).collect();
        assert!(lost.is_empty(), "{lost:?}");
        assert!(before.iter().any(|(began, _)| *began > draining), "service went on");
        assert!(after.len() < before.len(), "and ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_plugin_is_blamed_for_the_end_by_those_who_connect_anew_for_each_call() {
    let plugin = FakePlugin::named("quick").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("quick", 10);
    let gateway = Arc::new(gateway.set("/drain/grace", "300ms").start().await);
    let (ended, address, token) = (watch::Sender::new(false), gateway.data_addr(), token("acme"));
    let mut workers = Vec::new();
    // Few, so that there are moments without a connection.
    for _ in 0..2 {
        let (ended, token) = (ended.subscribe(), token.clone());
        workers.push(tokio::spawn(async move {
            let mut answers = Vec::new();
            while !*ended.borrow() {
                // Nothing is kept: a new client is a new connection.
                let agent = HttpAgent::new(address).with_token(&token);
                let request = agent.request(http::Method::POST, path(POINT));
                let request = request.header("content-type", "application/json");
                let answer = HttpAgent::send(request.body(json!({ "payload": payload() }).to_string())).await;
                answers.extend(answer);
            }
            answers
        }));
    }
    plugin.wait_until(|counts| counts.calls > 100).await;
    let exit = gateway.stop().await;
    ended.send_replace(true);
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    for worker in workers {
        for answer in worker.await.unwrap() {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
}
