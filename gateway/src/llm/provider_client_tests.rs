//! Tests of the clients: a worker's own, and the tries of one request, over real sockets.

use std::{
    num::NonZeroUsize,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use http::StatusCode;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::TaskTracker;

use super::*;
use crate::net::worker::Workers;

/// A provider over HTTP/2 that ends its first streams without an answer.
struct RefusingProvider {
    uri: Uri,
    client: ProviderClient,
    /// The streams so far.
    streams: Arc<AtomicUsize>,
}

impl RefusingProvider {
    /// `refused` streams are ended for this `reason`.
    async fn start(refused: usize, reason: h2::Reason) -> Self {
        Self::start_as(false, refused, reason).await
    }

    /// With `leaves`, the first connection ends before its first stream.
    async fn start_as(leaves: bool, refused: usize, reason: h2::Reason) -> Self {
        let (server, client) = tls_configs();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
        let streams = Arc::new(AtomicUsize::new(0));
        let (acceptor, counted) = (TlsAcceptor::from(Arc::new(server)), Arc::clone(&streams));
        let leaves = AtomicBool::new(leaves);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = acceptor.accept(stream).await.unwrap();
                let mut connection = h2::server::handshake(stream).await.unwrap();
                if leaves.swap(false, Ordering::SeqCst) {
                    connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                }
                tokio::spawn(answer(connection, Arc::clone(&counted), (refused, reason)));
            }
        });
        let client = ProviderClient::with_tls(client, DialPolicy::Any);
        RefusingProvider { uri: uri.parse().unwrap(), client, streams }
    }

    /// The status of an answer, if there is one, and how many streams it took.
    async fn post(&self) -> (Option<StatusCode>, usize) {
        let request = Request::post(self.uri.clone()).body(Full::new(Bytes::from_static(b"{}"))).unwrap();
        let sent = self.client.send(request).await;
        (sent.ok().map(|answer| answer.status()), self.streams.load(Ordering::SeqCst))
    }
}

fn tls_configs() -> (ServerConfig, ClientConfig) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let certificate = CertificateDer::from(certificate.der().to_vec());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut server =
        server.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key.into()).unwrap();
    server.alpn_protocols = vec![b"h2".to_vec()];
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    (server, client.unwrap().with_root_certificates(roots).with_no_client_auth())
}

async fn answer(
    mut connection: h2::server::Connection<TlsStream<TcpStream>, Bytes>,
    streams: Arc<AtomicUsize>,
    (refused, reason): (usize, h2::Reason),
) {
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        match streams.fetch_add(1, Ordering::SeqCst) < refused {
            true => respond.send_reset(reason),
            false => drop(respond.send_response(Response::new(()), true)),
        }
    }
}

#[tokio::test]
async fn a_stream_that_a_provider_refuses_unseen_is_sent_again_twice() {
    let provider = RefusingProvider::start(2, h2::Reason::REFUSED_STREAM).await;
    assert_eq!(provider.post().await, (Some(StatusCode::OK), 3));
    let provider = RefusingProvider::start(9, h2::Reason::REFUSED_STREAM).await;
    assert_eq!(provider.post().await, (None, 3));
}

#[tokio::test]
async fn a_request_behind_a_goaway_is_sent_on_another_connection() {
    let provider = RefusingProvider::start_as(true, 0, h2::Reason::NO_ERROR).await;
    assert_eq!(provider.post().await, (Some(StatusCode::OK), 1));
}

#[tokio::test]
async fn a_stream_that_a_provider_may_have_seen_is_not_sent_again() {
    for reason in [h2::Reason::INTERNAL_ERROR, h2::Reason::CANCEL, h2::Reason::NO_ERROR] {
        let provider = RefusingProvider::start(1, reason).await;
        assert_eq!(provider.post().await, (None, 1), "{reason}");
    }
}

#[tokio::test]
async fn each_worker_keeps_a_client_of_its_own() {
    let client = Arc::new(ProviderClient::new(DialPolicy::Any).unwrap());
    let workers = Workers::start(NonZeroUsize::new(2).unwrap()).unwrap();
    let tracker = TaskTracker::new();
    let (mut used, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let client = Arc::clone(&client);
        let (tell, told) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        kept.push(end);
        workers.spawn(&tracker, async move {
            let worker = WorkerId::current().expect("it runs on a worker").index;
            let (first, again) = (client.current(), client.current());
            assert!(ptr::eq(first, again));
            tell.send((worker, ptr::from_ref(first).addr())).unwrap();
            let _ = ended.await;
        });
        used.push(told.await.unwrap());
    }
    assert!(used.iter().any(|(worker, _)| *worker == 1), "two workers serve four connections");
    let others = ptr::from_ref(client.current()).addr();
    for (worker, address) in &used {
        assert_ne!(*address, others);
        let same = used.iter().all(|(other, theirs)| (other == worker) == (theirs == address));
        assert!(same, "{used:?}");
    }
}
