//! Finds out that the other end of a connection is gone without having closed it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use h2::{Ping, PingPong};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// After this much time without the beginning of a reply, a ping checks that the other end is alive, if a call is in
/// flight or ended without a reply. Otherwise an idle connection gets none: some gRPC servers close it for that.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The calls of a connection, and how long the plugin has been silent.
pub(super) struct CallActivity {
    /// When the connection began.
    origin: Instant,
    in_flight: AtomicUsize,
    /// In milliseconds after `origin`: when the last reply began, or the first call after all had replies.
    /// [`NOTHING_ASKED`] if no reply is missing. A call that ends without a reply leaves it as it is.
    silent_since: AtomicU64,
}

const NOTHING_ASKED: u64 = u64::MAX;

impl CallActivity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(CallActivity {
            origin: Instant::now(),
            in_flight: AtomicUsize::new(0),
            silent_since: AtomicU64::new(NOTHING_ASKED),
        })
    }

    /// A call begins, and is in flight until the guard is dropped.
    pub(super) fn begin_call(self: &Arc<Self>) -> CallGuard {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if self.silent_since.load(Ordering::Relaxed) == NOTHING_ASKED {
            self.note_now();
        }
        CallGuard { activity: Arc::clone(self), has_reply: false }
    }

    fn note_now(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis());
        self.silent_since.store(millis.unwrap_or_default(), Ordering::Relaxed);
    }

    fn note_pong(&self) {
        match self.in_flight.load(Ordering::Relaxed) {
            0 => self.silent_since.store(NOTHING_ASKED, Ordering::Relaxed),
            // The plugin may take as long as its calls may.
            _ => self.note_now(),
        }
    }

    /// When a ping is due, if a reply is missing.
    fn next_ping(&self) -> Option<Instant> {
        // A call that began just as the last one ended may have no time yet.
        if self.silent_since.load(Ordering::Relaxed) == NOTHING_ASKED
            && self.in_flight.load(Ordering::Relaxed) > 0
        {
            self.note_now();
        }
        match self.silent_since.load(Ordering::Relaxed) {
            NOTHING_ASKED => None,
            millis => Some(self.origin + Duration::from_millis(millis) + PING_INTERVAL),
        }
    }
}

/// A call in flight.
pub(super) struct CallGuard {
    activity: Arc<CallActivity>,
    has_reply: bool,
}

impl CallGuard {
    /// Notes that the reply began.
    pub(super) fn note_reply(&mut self) {
        self.has_reply = true;
        self.activity.note_now();
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let is_last = self.activity.in_flight.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && self.has_reply {
            self.activity.silent_since.store(NOTHING_ASKED, Ordering::Relaxed);
        }
    }
}

/// Returns when a ping is not answered.
pub(super) async fn until_dead(mut pings: PingPong, activity: Arc<CallActivity>) {
    loop {
        match activity.next_ping() {
            None => sleep(PING_INTERVAL).await,
            Some(next_ping) if next_ping > Instant::now() => sleep_until(next_ping).await,
            Some(_) => match timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
                Err(_) => return,
                // The connection has ended, and says so itself.
                Ok(Err(_)) => std::future::pending().await,
                Ok(Ok(_)) => activity.note_pong(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
        sync::mpsc,
        time::sleep,
    };

    use super::*;
    use crate::upstream::http2::Http2Client;

    const MINUTE: Duration = Duration::from_secs(60);
    /// The type of a PING frame, and its flag ACK.
    const PING: u8 = 6;
    const ACK: u8 = 1;

    /// A client, and its plugin's end.
    async fn connected() -> (Http2Client, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        (Http2Client::connect(ours).await.expect("connected"), theirs)
    }

    fn send(client: &Http2Client) -> impl Future<Output = Result<(), h2::Error>> + use<> {
        let sent = client.send(Request::post("http://plugin/").body(()).expect("valid"), Bytes::new());
        let reply = sent.expect("the connection takes requests");
        async move { reply.await.map(drop) }
    }

    /// Answers each request after `delay`.
    async fn answer(stream: DuplexStream, delay: Duration) {
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                sleep(delay).await;
                respond.send_response(http::Response::new(()), true).map(drop)
            });
        }
    }

    /// Passes the client's frames on, and sends when it pinged.
    async fn watch_pings(
        mut client: DuplexStream,
        mut plugin: DuplexStream,
        pings: mpsc::UnboundedSender<Instant>,
    ) {
        let mut preface = [0; 24];
        client.read_exact(&mut preface).await.expect("the preface");
        plugin.write_all(&preface).await.expect("it is read");
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_plugin, mut to_plugin) = tokio::io::split(plugin);
        tokio::spawn(async move { tokio::io::copy(&mut from_plugin, &mut to_client).await });
        let mut head = [0; 9];
        while from_client.read_exact(&mut head).await.is_ok() {
            if head[3] == PING && head[4] & ACK == 0 {
                pings.send(Instant::now()).expect("the test runs");
            }
            let mut frame = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            from_client.read_exact(&mut frame).await.expect("the whole frame");
            to_plugin.write_all(&head).await.expect("it is read");
            to_plugin.write_all(&frame).await.expect("it is read");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_answers_no_ping_loses_its_calls_after_15_seconds() {
        let (client, mut theirs) = connected().await;
        theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("SETTINGS");
        let begun = Instant::now();
        assert!(send(&client).await.is_err());
        let took = begun.elapsed();
        assert!((PING_INTERVAL + PING_TIMEOUT..Duration::from_secs(16)).contains(&took), "{took:?}");
        assert!(client.closed().is_cancelled());
    }

    /// A client of a plugin that answers after `delay`, and the times of its pings.
    async fn watched(delay: Duration) -> (Http2Client, mpsc::UnboundedReceiver<Instant>) {
        let (client, theirs) = connected().await;
        let (near, far) = tokio::io::duplex(1 << 16);
        let (noted, pings) = mpsc::unbounded_channel();
        tokio::spawn(watch_pings(theirs, near, noted));
        tokio::spawn(answer(far, delay));
        (client, pings)
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_answers_pings_may_take_its_time() {
        let (client, mut pings) = watched(Duration::from_secs(25)).await;
        let begun = Instant::now();
        send(&client).await.expect("an answer");
        for seconds in [10, 20] {
            let pinged = pings.try_recv().expect("a ping") - begun;
            assert_eq!(pinged.as_secs(), seconds);
        }
        assert!(pings.try_recv().is_err(), "there are two pings");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_not_pinged_while_it_is_idle_or_replies_come() {
        let (client, mut pings) = watched(Duration::from_secs(8)).await;
        send(&client).await.expect("an answer");
        sleep(MINUTE).await;
        // Together they are in flight for 15 s.
        let first = tokio::spawn(send(&client));
        sleep(Duration::from_secs(7)).await;
        send(&client).await.expect("an answer");
        first.await.expect("no panic").expect("an answer");
        sleep(MINUTE).await;
        assert!(pings.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_connection_is_found_however_short_and_rare_its_calls_are() {
        let (client, mut theirs) = connected().await;
        theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("SETTINGS");
        let begun = Instant::now();
        while !client.closed().is_cancelled() {
            assert!(begun.elapsed() < MINUTE, "the connection is still in use");
            let _ = timeout(Duration::from_millis(50), send(&client)).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert!(begun.elapsed() < Duration::from_secs(17), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_reply_has_begun_is_pinged_for_too() {
        let (client, theirs) = connected().await;
        let (near, far) = tokio::io::duplex(1 << 16);
        let (noted, mut pings) = mpsc::unbounded_channel();
        tokio::spawn(watch_pings(theirs, near, noted));
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(far).await.expect("HTTP/2");
            let mut unfinished = Vec::new();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                unfinished
                    .push(respond.send_response(http::Response::new(()), false).expect("an open stream"));
            }
        });
        let sent = client.send(Request::post("http://plugin/").body(()).expect("valid"), Bytes::new());
        let _reply = sent.expect("the connection takes requests").await.expect("a reply begins");
        sleep(Duration::from_secs(11)).await;
        assert!(pings.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_whose_last_call_timed_out_is_pinged_once() {
        let (client, mut pings) = watched(MINUTE).await;
        let _ = timeout(Duration::from_secs(1), send(&client)).await;
        sleep(10 * MINUTE).await;
        assert!(pings.try_recv().is_ok());
        assert!(pings.try_recv().is_err(), "the pong said that it is alive");
    }
}
