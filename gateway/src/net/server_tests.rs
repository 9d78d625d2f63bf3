//! Clients that take too long, on real sockets.

use tokio::{io::AsyncWriteExt, net::TcpSocket, sync::mpsc, task::JoinHandle};

use super::*;
use crate::{config, net::tracked_body};

/// Far longer than any test waits.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

/// Answers with more bytes than socket buffers hold, and tells when what the answer holds is dropped.
#[derive(Clone)]
struct Large(mpsc::Sender<()>);

impl RequestHandler for Large {
    async fn answer(&self, _request: Request<Body>) -> Response<Body> {
        let mut answer = Response::new(Body::from(vec![0; 32 << 20]));
        tracked_body::hold(&mut answer, self.0.clone());
        answer
    }
}

/// A client connected to a port with these timeouts. The receiver ends when no answer holds anything.
async fn connected(patience: Timeouts) -> (TcpStream, mpsc::Receiver<()>, JoinHandle<()>) {
    connected_to(None, patience).await
}

async fn connected_to(
    tls: Option<tls::Server>,
    patience: Timeouts,
) -> (TcpStream, mpsc::Receiver<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(4096).unwrap();
    let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let (held, released) = mpsc::channel(1);
    let serving = tokio::spawn(connection(stream, tls, Large(held), DrainSignals::default(), patience));
    (client, released, serving)
}

#[tokio::test]
async fn a_connection_that_does_not_say_what_it_speaks_is_closed() {
    for start in [&b""[..], b"P", b"PRI * HT", &HTTP2_PREFACE[..23], b"POST / HT"] {
        let (mut client, _released, serving) = connected(Timeouts { headers: SHORT, answer: LONG }).await;
        client.write_all(start).await.unwrap();
        let mut said = Vec::new();
        let ended = timeout(LONG / 2, client.read_to_end(&mut said)).await;
        assert!(ended.is_ok(), "{:?} is waited for without end", String::from_utf8_lossy(start));
        serving.await.unwrap();
    }
}

/// A listener's TLS with a certificate that no client trusts.
fn unknown() -> tls::Server {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    let (cert_file, key_file) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert_file, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let config = config::ServerTls { cert_file, key_file, client_ca_file: None };
    tls::Server::new(&config, &tls::CertificateWatch::default()).unwrap()
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_ended() {
    // No byte; the head of a record; the head of a ClientHello that announces more.
    for start in [&b""[..], &[22, 3, 1], &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc]] {
        let patience = Timeouts { headers: SHORT, answer: LONG };
        let (mut client, _released, serving) = connected_to(Some(unknown()), patience).await;
        client.write_all(start).await.unwrap();
        let mut said = Vec::new();
        let ended = timeout(LONG / 2, client.read_to_end(&mut said)).await;
        assert!(ended.is_ok(), "{start:?} is waited for without end");
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn bytes_that_come_one_by_one_are_a_request_all_the_same() {
    for request in
        [&b"PUT / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[HTTP2_PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()]
    {
        let (mut client, _released, _serving) = connected(Timeouts { headers: LONG, answer: LONG }).await;
        client.set_nodelay(true).unwrap();
        for byte in request {
            client.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut first = [0; 9];
        timeout(LONG / 2, client.read_exact(&mut first)).await.expect("it is answered").unwrap();
        assert!(&first == b"HTTP/1.1 " || first[3] == 4, "{first:?}");
    }
}

#[tokio::test]
async fn an_unread_answer_keeps_what_it_holds_until_its_connection_ends() {
    let (mut client, mut released, serving) = connected(Timeouts { headers: LONG, answer: LONG }).await;
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    client.readable().await.unwrap();
    // the edge with its own clone is gone with the connection, so only an end of it ends the channel
    assert!(timeout(SHORT, released.recv()).await.is_err(), "the answer is begun and not written");
    drop(client);
    assert_eq!(timeout(LONG / 2, released.recv()).await.expect("the client is gone"), None);
    serving.await.unwrap();

    let (mut client, mut released, serving) = connected(Timeouts { headers: LONG, answer: SHORT }).await;
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(timeout(LONG / 2, released.recv()).await.expect("the client takes too long"), None);
    timeout(LONG / 2, serving).await.expect("its connection is ended").unwrap();
}
