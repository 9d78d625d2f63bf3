use std::time::Duration;

use proptest::prelude::*;
use tokio::{
    io::{DuplexStream, Lines, duplex, split},
    time::timeout,
};

use super::*;
use crate::instances::Instance;

const MAX_LINE: u64 = 1000;

/// The plugin's side of a connection.
pub(in crate::kaged) struct FakePlugin {
    lines: Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    output: tokio::io::WriteHalf<DuplexStream>,
}

impl FakePlugin {
    pub(in crate::kaged) async fn write(&mut self, text: impl AsRef<[u8]>) {
        self.output.write_all(text.as_ref()).await.expect("the connection reads");
    }

    /// The next line that the plugin gets, within 10 s.
    async fn line(&mut self) -> String {
        timeout(Duration::from_secs(10), self.next_line()).await.expect("a line comes")
    }

    /// The next line that the plugin gets, whenever it comes.
    pub(in crate::kaged) async fn next_line(&mut self) -> String {
        self.lines.next_line().await.expect("it is text").expect("the connection goes on")
    }
}

/// A configuration without secrets.
pub(in crate::kaged) fn no_config() -> Arc<Instance> {
    let redaction = hookgate::upstream::Redaction::new(Vec::new());
    Arc::new(Instance::new(String::new(), Bytes::new(), redaction))
}

pub(in crate::kaged) fn connect() -> (Connection, PluginOutput, FakePlugin) {
    let (ours, theirs) = duplex(64);
    let (stdout, stdin) = split(ours);
    let (input, output) = split(theirs);
    let log = MessageLog::new("notes".into(), "acme".into(), no_config());
    let (connection, plugin_output) = Connection::new(stdin, stdout, MAX_LINE, log);
    (connection, plugin_output, FakePlugin { lines: BufReader::new(input).lines(), output })
}

/// Has the plugin answer its first request, with the id 1.
pub(in crate::kaged) async fn open(connection: &Connection, plugin: &mut FakePlugin) {
    let first = connection.request("initialize", b"{}");
    let answer = async {
        plugin.next_line().await;
        plugin.write("{\"id\":1,\"result\":{}}\n").await;
    };
    assert_eq!(tokio::join!(first, answer).0, Ok(Ok("{}".into())));
}

async fn end(output: PluginOutput) -> OutputEnd {
    timeout(Duration::from_secs(10), output.end).await.expect("it ends").expect("no panic")
}

#[tokio::test]
async fn ten_requests_are_answered_in_any_order() {
    let (connection, _output, mut plugin) = connect();
    let request = |n: usize| {
        let connection = connection.clone();
        tokio::spawn(async move { connection.request("echo", n.to_string().as_bytes()).await })
    };
    let requests: Vec<_> = (0..10).map(request).collect();
    let mut got = Vec::new();
    for _ in 0..10 {
        let line: serde_json::Value = serde_json::from_str(&plugin.line().await).expect("it is JSON");
        got.push((line["id"].as_u64().expect("an integer"), line["params"].clone()));
    }
    let mut ids: Vec<_> = got.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>());
    for (id, params) in got.iter().rev() {
        plugin.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{params}}}\n")).await;
    }
    for (n, request) in requests.into_iter().enumerate() {
        assert_eq!(request.await.expect("no panic"), Ok(Ok(n.to_string().into())));
    }
}

#[tokio::test]
async fn noise_and_batches_are_dropped_and_the_response_after_them_counts() {
    let (connection, _output, mut plugin) = connect();
    open(&connection, &mut plugin).await;
    let request = tokio::spawn({
        let connection = connection.clone();
        async move { connection.request("echo", b"{}").await }
    });
    assert_eq!(plugin.line().await, r#"{"jsonrpc":"2.0","id":2,"method":"echo","params":{}}"#);
    plugin.write("hi\n\n[{\"id\":2,\"result\":\"of a batch\"}]\n").await;
    let refusal =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches are not allowed"}}"#;
    assert_eq!(plugin.line().await, refusal);
    plugin.write("{\"id\":7,\"result\":\"of another\"}\n{\"x\":1}\n{\"id\":2,\"result\":\"mine\"}\n").await;
    assert_eq!(request.await.expect("no panic"), Ok(Ok("\"mine\"".into())));
}

#[tokio::test]
async fn a_request_of_the_plugin_is_passed_on_and_answered_by_its_id() {
    let (connection, mut output, mut plugin) = connect();
    open(&connection, &mut plugin).await;
    plugin.write("{\"id\":\"a\",\"method\":\"storage.query\",\"params\":{\"sql\":\"x\"}}\n").await;
    let request = output.requests.recv().await.expect("it is passed on");
    assert_eq!((&*request.id, &*request.method), ("\"a\"", "storage.query"));
    connection.respond(&request.id, &Ok(request.params.to_vec())).await.expect("the plugin reads");
    assert_eq!(plugin.line().await, r#"{"jsonrpc":"2.0","id":"a","result":{"sql":"x"}}"#);
}

#[tokio::test(start_paused = true)]
async fn more_than_a_hundred_notifications_in_a_second_are_dropped_and_the_plugin_is_told_once() {
    let (connection, _output, mut plugin) = connect();
    open(&connection, &mut plugin).await;
    plugin.write("{\"method\":\"catalog.updated\"}\n".repeat(150)).await;
    assert_eq!(plugin.line().await, r#"{"jsonrpc":"2.0","method":"system.rate_limited","params":{}}"#);
    connection.notify("ping", b"{}").await.expect("the plugin reads");
    assert_eq!(plugin.line().await, r#"{"jsonrpc":"2.0","method":"ping","params":{}}"#);
}

#[tokio::test]
async fn a_line_up_to_the_limit_is_read_and_a_longer_one_ends_the_connection() {
    let (connection, output, mut plugin) = connect();
    let request = tokio::spawn({
        let connection = connection.clone();
        async move { connection.request("echo", b"{}").await }
    });
    plugin.line().await;
    let response = "{\"id\":1,\"result\":\"\"}".len();
    let text = "x".repeat(MAX_LINE as usize - response);
    plugin.write(format!("{{\"id\":1,\"result\":\"{text}\"}}\n")).await;
    let result = request.await.expect("no panic").expect("it goes on").expect("no error");
    assert_eq!(result.len(), text.len() + 2);
    plugin.write("x".repeat(MAX_LINE as usize + 1)).await;
    assert_eq!(end(output).await, OutputEnd::TooLong(MAX_LINE));
}

#[tokio::test]
async fn a_message_before_the_handshake_ends_the_connection_and_noise_does_not() {
    for message in ["{\"method\":\"x\"}\n", "{\"id\":1,\"method\":\"x\"}\n", "[]\n", "{}\n"] {
        let (_connection, output, mut plugin) = connect();
        plugin.write("starting\n").await;
        plugin.write(message).await;
        assert_eq!(end(output).await, OutputEnd::TooEarly, "{message}");
    }
}

#[tokio::test]
async fn a_message_right_after_the_first_answer_is_read() {
    let (connection, mut output, mut plugin) = connect();
    let first = connection.request("initialize", b"{}");
    let answer = async {
        plugin.line().await;
        plugin.write("{\"id\":1,\"result\":{}}\n{\"id\":9,\"method\":\"storage.schema\"}\n").await;
    };
    assert_eq!(tokio::join!(first, answer).0, Ok(Ok("{}".into())));
    assert_eq!(output.requests.recv().await.map(|request| request.method), Some("storage.schema".into()));
}

#[tokio::test]
async fn requests_beyond_those_that_may_wait_are_refused_and_answers_are_read_meanwhile() {
    let (connection, _output, mut plugin) = connect();
    open(&connection, &mut plugin).await;
    plugin.write("{\"id\":9,\"method\":\"storage.schema\"}\n".repeat(MAX_REQUESTS + 1)).await;
    let refusal = |code: i64, message: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":9,"error":{{"code":{code},"message":"{message}"}}}}"#)
    };
    assert_eq!(plugin.line().await, refusal(-32000, "too many requests at the same time"));
    answer_another(&connection, &mut plugin).await;
}

/// Has the plugin answer another request, with the id 2.
async fn answer_another(connection: &Connection, plugin: &mut FakePlugin) {
    let request = connection.request("echo", b"{}");
    let answer = async {
        plugin.line().await;
        plugin.write("{\"id\":2,\"result\":1}\n").await;
    };
    assert_eq!(tokio::join!(request, answer).0, Ok(Ok("1".into())));
}

#[tokio::test]
async fn an_end_of_the_connection_ends_its_requests() {
    let (connection, output, plugin) = connect();
    let request = tokio::spawn({
        let connection = connection.clone();
        async move { connection.request("echo", b"{}").await }
    });
    drop(plugin);
    assert_eq!(end(output).await, OutputEnd::Closed);
    connection.end();
    assert_eq!(request.await.expect("no panic"), Err(ConnectionEnd));
    assert_eq!(connection.request("echo", b"{}").await, Err(ConnectionEnd));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lines_may_be_split_at_every_byte(cuts in prop::collection::vec(1_usize..40, 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
        runtime.block_on(async {
            let (connection, mut output, mut plugin) = connect();
            open(&connection, &mut plugin).await;
            let request = tokio::spawn({
                let connection = connection.clone();
                async move { connection.request("echo", b"{}").await }
            });
            plugin.line().await;
            let mut text = "noise ü\n{\"id\":9,\"method\":\"m\",\"params\":{\"t\":\"ä\\n\"}}\r\n{\"id\":2,\"result\":\"ö\"}\n".as_bytes();
            for cut in cuts {
                let (now, later) = text.split_at(cut.min(text.len()));
                plugin.write(now).await;
                tokio::task::yield_now().await;
                text = later;
            }
            plugin.write(text).await;
            let asked = output.requests.recv().await.expect("it is passed on");
            assert_eq!(asked.params, "{\"t\":\"ä\\n\"}");
            assert_eq!(request.await.expect("no panic"), Ok(Ok("\"ö\"".into())));
        });
    }
}
