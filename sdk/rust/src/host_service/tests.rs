use std::{path::Path, time::Duration};

use hookgate_proto::host::v1::{
    storage_service_server::StorageServiceServer, token_service_server::TokenServiceServer,
};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::{Identity, Server, ServerTlsConfig, server::Router};

use super::{dial::TlsFiles, *};
use crate::{Storage, context::ForwardedMetadata, harness::TestHost};

const CAPABILITIES: [Capability; 2] = [Capability::StorageRead, Capability::StorageWrite];

fn router(storage: &TestHost, mut server: Server) -> Router {
    let router = server.add_service(StorageServiceServer::new(storage.clone()));
    router.add_service(TokenServiceServer::new(storage.clone()))
}

/// Serves the storage until the test ends.
async fn serve(storage: &TestHost) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = TcpListenerStream::new(listener);
    tokio::spawn(router(storage, Server::builder()).serve_with_incoming(incoming));
    format!("http://{address}")
}

/// An endpoint at which nobody listens.
async fn dead_endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn request(gateway: &str, endpoint: &str) -> InitializeRequest {
    InitializeRequest {
        gateway_instance_id: gateway.to_owned(),
        host_endpoint: endpoint.to_owned(),
        host_token: "unknown".to_owned(),
        ..Default::default()
    }
}

fn token(storage: &TestHost) -> String {
    storage.issue("p", Some("acme"), &CAPABILITIES)
}

/// The storage as a call gets it from gateways at these endpoints, the newest last.
fn storage_at(endpoints: &[&str], token: &str) -> Storage {
    let (services, links) = (HostServices::default(), Arc::new(HostLinks::default()));
    for (number, endpoint) in endpoints.iter().enumerate() {
        links.add(Arc::new(services.link(&request(&format!("g{number}"), endpoint))));
    }
    Storage::new(HostClient::for_call(links, bearer(token), None, ForwardedMetadata::default()))
}

#[tokio::test]
async fn a_gateway_is_reached_over_tcp_and_a_unix_socket() {
    let all = TestHost::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.sock");
    let incoming = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
    tokio::spawn(router(&all, Server::builder()).serve_with_incoming(incoming));
    for endpoint in [serve(&all).await, format!("unix://{}", path.display())] {
        let storage = storage_at(&[&endpoint], &token(&all));
        let count = storage.add("n", 1).await.unwrap();
        assert!(count.is_added(), "{endpoint}");
    }
    assert_eq!(all.storage_of("p", Some("acme")).get("n").await.unwrap().unwrap().counter(), Some(2));
}

#[tokio::test]
async fn a_gateway_is_reached_over_tls_with_a_ca_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.pem");
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let pem = certificate.cert.pem();
    std::fs::write(&ca_file, &pem).unwrap();
    let identity = Identity::from_pem(pem, certificate.signing_key.serialize_pem());
    let tls = Server::builder().tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let all = TestHost::new();
    tokio::spawn(router(&all, tls).serve_with_incoming(TcpListenerStream::new(listener)));

    let at = |ca_file: &Path| {
        let files = TlsFiles { ca: Some(ca_file.into()), ..TlsFiles::default() };
        let service = HostService::from_fallible(dial::dial(&endpoint, &files).unwrap());
        let links = Arc::new(HostLinks::default());
        links.add(Arc::new(HostLink::new("g", Ok(Arc::new(service)), "")));
        Storage::new(HostClient::for_call(links, bearer(&token(&all)), None, ForwardedMetadata::default()))
    };
    assert!(at(&ca_file).add("n", 1).await.unwrap().is_added());
    let other = directory.path().join("other.pem");
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&other, stranger.cert.pem()).unwrap();
    assert!(at(&other).add("n", 1).await.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn an_endpoint_or_a_file_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let (text, pem) = (file("text", "nothing"), file("pem", "-----BEGIN CERTIFICATE-----"));
    let pair = |name: &str| {
        let pair = rcgen::generate_simple_self_signed(vec!["plugin".to_owned()]).unwrap();
        (
            file(&format!("{name}.crt"), &pair.cert.pem()),
            file(&format!("{name}.key"), &pair.signing_key.serialize_pem()),
        )
    };
    let ((certificate, _), (_, other_key)) = (pair("one"), pair("other"));
    let encrypted = file("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----");
    let none = TlsFiles::default();
    let tls = "https://localhost:1";
    for (endpoint, files, expected) in [
        ("localhost:80", none.clone(), "`host_endpoint` isn't unix:///path"),
        ("http://a b", none.clone(), "`host_endpoint` isn't"),
        (tls, TlsFiles { ca: Some("/no/such/ca.pem".into()), ..none.clone() }, "HOST_CA_FILE: can't read"),
        (tls, TlsFiles { ca: text.clone(), ..none.clone() }, "no certificate in PEM form"),
        (tls, TlsFiles { certificate: pem.clone(), ..none.clone() }, "HOOKGATE_HOST_KEY_FILE is not set"),
        (tls, TlsFiles { key: pem.clone(), ..none.clone() }, "HOOKGATE_HOST_CERT_FILE is not set"),
        (tls, TlsFiles { certificate: pem.clone(), key: text, ..none.clone() }, "no private key in PEM form"),
        (
            tls,
            TlsFiles { certificate: pem, key: encrypted, ..none.clone() },
            "encrypted is encrypted; name a file",
        ),
        (tls, TlsFiles { certificate, key: other_key, ..none }, "check the files that HOOKGATE_HOST_CA_FILE"),
    ] {
        let error = dial::dial(endpoint, &files).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_gateway_without_host_services_is_reported_with_the_remedy() {
    for storage in [storage_at(&[], "t"), storage_at(&[""], "")] {
        let error = storage.get("k").await.unwrap_err();
        assert_eq!(error, HostError::NotOffered);
        assert!(error.to_string().contains("set `server.host_addr` or `server.host_socket`"));
    }
    let unsigned = storage_at(&["http://127.0.0.1:1"], "").get("k").await.unwrap_err();
    assert!(unsigned.is_unavailable() && unsigned.to_string().contains("can't sign tokens"), "{unsigned}");
}

#[tokio::test]
async fn another_gateway_is_used_if_the_newest_is_gone_or_refuses_the_token() {
    let (all, other) = (TestHost::new(), TestHost::new());
    let (alive, stranger, dead) = (serve(&all).await, serve(&other).await, dead_endpoint().await);
    let storage = storage_at(&[&alive, &stranger, &dead], &token(&all));
    for expected in 1..=3 {
        assert_eq!(storage.add("n", 1).await.unwrap().counter(), expected);
    }
    // A call that a gateway may have made isn't repeated.
    other.set_available(false);
    assert!(storage.add("n", 1).await.unwrap_err().is_unavailable());
    assert_eq!(storage.add("n", 1).await.unwrap().counter(), 4, "the failed one is tried last");
}

#[tokio::test]
async fn instances_share_a_connection_and_the_last_one_closes_it() {
    let services = HostServices::default();
    let first = services.connection("http://127.0.0.1:1").unwrap();
    let second = services.connection("http://127.0.0.1:1").unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(&first, &services.connection("http://127.0.0.1:2").unwrap()));
    drop((first, second));
    let _third = services.connection("http://127.0.0.1:3").unwrap();
    assert_eq!(services.connections.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_link_that_a_gateway_sends_again_replaces_its_earlier_one() {
    let all = TestHost::new();
    let (services, links) = (HostServices::default(), Arc::new(HostLinks::default()));
    for endpoint in [dead_endpoint().await, serve(&all).await] {
        links.add(Arc::new(services.link(&request("g", &endpoint))));
    }
    assert_eq!(links.candidates().len(), 1);
    links.remove("g");
    let storage =
        Storage::new(HostClient::for_call(links, bearer(&token(&all)), None, ForwardedMetadata::default()));
    assert!(storage.add("n", 1).await.unwrap().is_added(), "the last one stays for the flush");
}

#[tokio::test(start_paused = true)]
async fn the_plugins_token_is_renewed_at_half_of_its_life_and_again_after_a_failure() {
    let all = TestHost::new();
    let old = all.issue("p", None, &CAPABILITIES);
    let services = HostServices::in_process(all.host_service());
    let capabilities = CAPABILITIES.map(|capability| capability.as_str().to_owned()).into();
    let request = InitializeRequest { capabilities, host_token: old.clone(), ..Default::default() };
    let links = Arc::new(HostLinks::default());
    links.add(Arc::new(services.link(&request)));
    let storage = Storage::new(HostClient::for_plugin(Arc::clone(&links)));
    links.keep_tokens();
    let header = || links.candidates()[0].token().unwrap();
    let hours = |hours: u64| Duration::from_secs(hours * 3600);

    tokio::time::sleep(hours(11)).await;
    assert_eq!(header(), format!("Bearer {old}"));
    all.set_available(false);
    tokio::time::sleep(hours(2)).await;
    assert_eq!(header(), format!("Bearer {old}"));
    all.set_available(true);
    tokio::time::sleep(hours(1)).await;
    let renewed = header();
    assert_ne!(renewed, format!("Bearer {old}"));
    all.revoke(&old);
    storage.put("k", "v").await.unwrap();
    tokio::time::sleep(hours(100)).await;
    assert_ne!(header(), renewed);
    assert!(storage.get("k").await.unwrap().is_some());
}
