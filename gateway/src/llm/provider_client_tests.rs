//! Tests of the clients, over real sockets.

use std::{convert::Infallible, num::NonZeroUsize, ptr, sync::Arc};

use futures::StreamExt;
use http::StatusCode;
use http_body_util::StreamBody;
use hyper::{body::Frame, service::service_fn};
use hyper_util::server::conn::auto;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};
use tokio::{net::TcpListener, sync::oneshot, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::*;
use crate::{fairness::compute_pool::ComputePool, net::worker::Workers};

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
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    (server, client.unwrap().with_root_certificates(roots).with_no_client_auth())
}

/// A provider over TLS that prefers HTTP/2, as most do. At `/long` its answer never ends, elsewhere it is empty.
async fn provider(tls: ServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
            let answer = service_fn(|request: Request<Incoming>| async move {
                let pieces = if request.uri().path() == "/long" { usize::MAX } else { 0 };
                let piece = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 64 << 10])));
                Ok::<_, Infallible>(Response::new(StreamBody::new(
                    futures::stream::repeat_with(piece).take(pieces),
                )))
            });
            tokio::spawn(async move {
                // A client that has left is no failure.
                drop(auto::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await);
            });
        }
    });
    base
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_up_no_other_request() {
    let (server, client) = tls_configs();
    let base = provider(server).await;
    let client = ProviderClient::with_tls(client, DialPolicy::Any);
    let post = |path| {
        let request = Request::post(format!("{base}{path}")).body(Full::new(Bytes::from_static(b"{}")));
        timeout(Duration::from_secs(10), client.send(request.unwrap()))
    };
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(post("/long").await.expect("in time").expect("answered"));
    }
    // Longer than it takes to fill what an HTTP/2 connection would let the provider send.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let answer = post("/short").await.expect("in time").expect("answered");
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, http::Version::HTTP_11));
    assert!(unread.iter().all(|answer| answer.status() == StatusCode::OK));
}

#[tokio::test]
async fn each_worker_keeps_a_client_of_its_own() {
    let client = Arc::new(ProviderClient::new(DialPolicy::Any).unwrap());
    let workers = Workers::start(NonZeroUsize::new(2).unwrap(), ComputePool::default()).unwrap();
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
