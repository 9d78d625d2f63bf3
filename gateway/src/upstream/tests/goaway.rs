//! Calls that cross a GOAWAY: streams beyond its last one were not processed (RFC 9113, section 6.8).

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
};

use super::support::*;
use crate::core::step::Reason;

const LIMIT: Duration = Duration::from_secs(2);
const HEADERS: u8 = 1;
/// The last streams of the handshakes: after Describe, Initialize and the first health check, and later after
/// Describe alone.
const LAST: [u32; 2] = [5, 1];

/// Forwards the client's frames until the first call, which the plugin never gets.
async fn pass_down(
    mut client: OwnedReadHalf,
    mut plugin: OwnedWriteHalf,
    last: Option<u32>,
    call_came: &Notify,
) -> io::Result<()> {
    let mut preface = [0; 24];
    client.read_exact(&mut preface).await?;
    plugin.write_all(&preface).await?;
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if head[3] == HEADERS && last.is_some_and(|last| stream > last) {
            call_came.notify_one();
            std::future::pending::<()>().await;
        }
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        client.read_exact(&mut body).await?;
        plugin.write_all(&head).await?;
        plugin.write_all(&body).await?;
    }
}

/// A proxy in front of the plugin at `place`. On the first `goaways` connections it answers the first call
/// with GOAWAY, without an error and with the previous stream as the last. It serves the other connections.
async fn relay(listener: TcpListener, place: String, goaways: usize, connections: Arc<AtomicUsize>) {
    while let Ok((client, _)) = listener.accept().await {
        let last = LAST[..goaways].get(connections.fetch_add(1, Ordering::SeqCst)).copied();
        let plugin =
            TcpStream::connect(place.trim_start_matches("http://")).await.expect("the plugin listens");
        tokio::spawn(async move {
            let ((from_client, mut to_client), (mut from_plugin, to_plugin)) =
                (client.into_split(), plugin.into_split());
            let call_came = Notify::new();
            let down = pass_down(from_client, to_plugin, last, &call_came);
            let up = async {
                tokio::select! {
                    copied = tokio::io::copy(&mut from_plugin, &mut to_client) => return copied.map(drop),
                    () = call_came.notified() => {}
                }
                let mut goaway = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
                goaway.extend_from_slice(&last.unwrap_or_default().to_be_bytes());
                goaway.extend_from_slice(&0_u32.to_be_bytes());
                to_client.write_all(&goaway).await
            };
            // The connection ends when either end closes it.
            let _ = tokio::join!(down, up);
        });
    }
}

#[tokio::test]
async fn call_that_a_goaway_leaves_out_is_tried_once_more() {
    for goaways in [1, 2] {
        let (place, script) = (Place::new(Wire::Tcp), Arc::new(Script::default()));
        let _running = place.start(Process::new(&script));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let front = format!("http://{}", listener.local_addr().expect("bound"));
        let connections = Arc::default();
        let relaying = tokio::spawn(relay(listener, place.endpoint(), goaways, Arc::clone(&connections)));
        let client = Client::new(&registered(front));
        client.until_ready().await;
        let result = client.tool_call(LIMIT).await;
        match goaways {
            1 => assert!(result.is_ok(), "{result:?}"),
            _ => assert_eq!(result.unwrap_err().reason, Reason::RpcError),
        }
        assert_eq!(script.executions(), usize::from(goaways == 1));
        assert!(connections.load(Ordering::SeqCst) >= 2);
        relaying.abort();
    }
}
