use tokio::{task::JoinHandle, time::Instant};

use super::*;
use crate::kaged::connection::{
    PluginOutput,
    tests::{FakePlugin, connect, no_config, open},
};

const INTERVAL: Duration = Duration::from_secs(30);

/// What a session without a process has instead of one.
pub(in crate::kaged) struct FakeProcess {
    pub(in crate::kaged) plugin: FakePlugin,
    pub(in crate::kaged) faults: mpsc::UnboundedReceiver<ProgramFault>,
    pub(in crate::kaged) ending: watch::Sender<Option<Arc<ProgramFault>>>,
    _output: PluginOutput,
}

/// A session without a process, after its handshake.
pub(in crate::kaged) async fn session() -> (Arc<Session>, FakeProcess) {
    let (connection, output, mut plugin) = connect();
    open(&connection, &mut plugin).await;
    let (faults, received) = mpsc::unbounded_channel();
    let (ending, end) = watch::channel(None);
    let session = Session {
        connection,
        places: Arc::new(Semaphore::new(2)),
        hook_turn: Arc::default(),
        in_flight: AtomicUsize::new(0),
        faults,
        is_failing: AtomicBool::new(false),
        end,
        stderr: OutputLog::new("notes".into(), "acme".into(), no_config()).follow(tokio::io::empty()),
        // This process, which has used some CPU time.
        leader: i32::try_from(std::process::id()).expect("ids are small"),
    };
    (Arc::new(session), FakeProcess { plugin, faults: received, ending, _output: output })
}

fn watch_health(session: &Arc<Session>) -> JoinHandle<Instant> {
    let session = Arc::clone(session);
    tokio::spawn(async move {
        session.watch_health(INTERVAL).await;
        Instant::now()
    })
}

/// Has the plugin answer `request`.
async fn call(
    session: &Arc<Session>,
    request: Arc<KagedRequest>,
    time: Duration,
) -> Result<Result<Bytes, RpcError>, Arc<ProgramFault>> {
    let turn = session.turn(request.kind).await;
    session.call(request, time, turn).await
}

/// Answers the next ping after `delay`.
async fn answer_ping(plugin: &mut FakePlugin, delay: Duration) {
    let line = plugin.next_line().await;
    assert!(line.contains(r#""method":"ping""#), "{line}");
    let ping: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
    sleep(delay).await;
    plugin.write(format!("{{\"id\":{},\"result\":{{\"status\":\"ok\"}}}}\n", ping["id"])).await;
}

fn hook() -> Arc<KagedRequest> {
    let kind = CallKind::Hook(crate::kaged::manifest::KagedHook::OnSessionStart);
    Arc::new(KagedRequest { kind, method: "hook".into(), params: b"{}".to_vec() })
}

#[tokio::test(start_paused = true)]
async fn three_pings_without_an_answer_end_a_plugin() {
    let (session, mut process) = session().await;
    let (begin, watching) = (Instant::now(), watch_health(&session));
    answer_ping(&mut process.plugin, Duration::ZERO).await;
    // Late answers don't count.
    answer_ping(&mut process.plugin, Duration::from_secs(6)).await;
    answer_ping(&mut process.plugin, Duration::ZERO).await;
    // The plugin read the third ping after its late answer, a second after it was sent.
    let end = watching.await.expect("no panic");
    assert_eq!((end - begin).as_secs(), 66 + (INTERVAL + MAX_PING * 3).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_plugin_is_not_ended_for_missed_pings_while_it_has_a_call() {
    let (session, _process) = session().await;
    let watching = watch_health(&session);
    let call = tokio::spawn({
        let session = Arc::clone(&session);
        async move { call(&session, KagedRequest::for_test(), INTERVAL * 20).await }
    });
    sleep(INTERVAL * 10).await;
    assert!(!watching.is_finished() && !call.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_call_over_its_time_ends_the_plugin_also_if_nobody_waits_for_it() {
    for is_given_up in [false, true] {
        let (session, mut process) = session().await;
        let call = call(&session, KagedRequest::for_test(), Duration::from_secs(7));
        if is_given_up {
            assert!(timeout(Duration::from_secs(5), call).await.is_err());
        } else {
            let fault = call.await.expect_err("it takes too long");
            assert_eq!(fault.to_string(), "the program did not reply within 7s (`limits.time`)");
        }
        let fault = process.faults.recv().await.map(|fault| fault.to_string());
        assert_eq!(fault.as_deref(), Some("the program did not reply within 7s (`limits.time`)"));
        assert!(session.has_ended());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_has_its_turn_until_it_is_answered_and_takes_no_place_while_it_waits() {
    let (session, mut process) = session().await;
    let spawn = |request: Arc<KagedRequest>| {
        let session = Arc::clone(&session);
        tokio::spawn(async move { call(&session, request, INTERVAL).await })
    };
    let (first, second, third) = (spawn(hook()), spawn(hook()), spawn(hook()));
    assert!(process.plugin.next_line().await.contains(r#""id":2,"method":"hook""#));
    first.abort();
    let tool = spawn(KagedRequest::for_test());
    assert!(process.plugin.next_line().await.contains(r#""id":3,"method":"notes.retain""#));
    process.plugin.write("{\"id\":2,\"result\":1}\n{\"id\":3,\"result\":2}\n").await;
    assert_eq!(tool.await.expect("no panic").expect("it is answered"), Ok("2".into()));
    for (id, call) in [(4, second), (5, third)] {
        assert!(process.plugin.next_line().await.contains(&format!(r#""id":{id},"method":"hook""#)));
        process.plugin.write(format!("{{\"id\":{id},\"result\":{id}}}\n")).await;
        assert_eq!(call.await.expect("no panic").expect("it is answered"), Ok(id.to_string().into()));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_plugin_that_ended_fail_with_the_reason_or_that_another_call_ended_it() {
    let late = ProgramFault::TimedOut { limit: INTERVAL, progress: ReplyProgress::Nothing };
    for (fault, reason) in [
        (ProgramFault::Refused("x".into()), "the program was ended: x"),
        (late, "the program was ended: another call took too long"),
    ] {
        let (session, process) = session().await;
        let call = tokio::spawn({
            let session = Arc::clone(&session);
            async move { call(&session, KagedRequest::for_test(), INTERVAL).await }
        });
        tokio::task::yield_now().await;
        process.ending.send(Some(Arc::new(fault))).expect("the session listens");
        session.connection.end();
        assert_eq!(call.await.expect("no panic").expect_err("it ended").to_string(), reason);
    }
}
