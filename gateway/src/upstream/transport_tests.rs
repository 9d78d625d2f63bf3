use std::net::SocketAddr;

use serde_json::json;

use super::*;
use crate::upstream::tests::support::shared;

fn plugin(tls: Option<serde_json::Value>) -> config::Plugin {
    serde_json::from_value(json!({ "name": "guard", "tls": tls })).expect("a plugin")
}

/// A CA's file, for a client that needs one.
fn ca() -> tempfile::NamedTempFile {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::default().self_signed(&key).expect("a certificate");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), certificate.pem()).expect("it can be written");
    file
}

fn read(endpoint: &str, tls: Option<serde_json::Value>) -> Result<Target, String> {
    parse(
        endpoint,
        &TransportSecurity::new(
            &plugin(tls),
            &config::ApiPluginPolicy::default(),
            &tls::CertificateWatch::default(),
        ),
    )
}

#[tokio::test]
async fn dialled_socket_sends_small_writes_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let authority = Authority::from_static("plugin");
    let to = Destination::Name { host: "127.0.0.1".into(), port };
    let tcp = Tcp { address: String::new(), authority, to, policy: DialPolicy::Any, tls: None };
    assert!(tcp.dial().await.expect("listening").nodelay().expect("a socket"));
}

#[test]
fn endpoints_that_cannot_be_dialled_are_refused() {
    for (endpoint, what) in [
        ("unix://relative.sock", "not an absolute path"),
        ("http://plugin", "without a port"),
        ("http://plugin:70000", "without a port"),
        ("http://plugin:7000/path", "a URL with a path"),
        ("http://user@plugin:7000", "a URL with a user"),
        ("dns:///plugin", "without a port"),
        ("dns:///plugin:7000/path", "not a URL"),
        ("dns:///user@plugin:7000", "a URL with a user"),
        ("ftp://plugin:7000", "not of a known scheme"),
        ("plugin:7000", "not of a known scheme"),
    ] {
        let said = read(endpoint, None).map(|_| ()).expect_err(endpoint);
        assert!(said.starts_with(&format!("`{endpoint}` is {what}: ")), "{endpoint}: {said}");
    }
    let ca = ca();
    for endpoint in ["unix:///run/a.sock", "http://plugin:7000", "http://[::1]:7000/", "https://plugin:7000"]
    {
        let target = read(endpoint, Some(json!({ "ca_file": ca.path() }))).expect(endpoint);
        let Target::One(transport) = target else { panic!("{endpoint} is one address") };
        assert_eq!(transport.address(), endpoint);
    }
}

#[test]
fn an_address_of_a_name_is_dialled_under_the_name() {
    let ca = ca();
    for (tls, scheme) in [(None, "http"), (Some(json!({ "ca_file": ca.path() })), "https")] {
        let Target::Names(names) = read("dns:///guard.example.com:7000", tls).expect("a name") else {
            panic!("a name has any number of addresses")
        };
        assert_eq!((&*names.host, names.port), ("guard.example.com", 7000));
        assert_eq!(names.authority, "guard.example.com:7000");
        for address in ["10.0.0.1:7000", "[fd00::1]:7000"] {
            let at: SocketAddr = address.parse().expect("an address");
            assert_eq!(transport_to(&names, at).address(), format!("{scheme}://{address}"));
        }
    }
}

#[tokio::test]
async fn an_address_that_a_name_server_gives_is_not_dialled_where_it_is_denied() {
    let denied = async |transport: Box<dyn Transport>| {
        let error = transport.connect().await.map(|_| ()).expect_err("not dialled");
        assert_eq!(error.cause, DialErrorKind::EgressDenied, "{error}");
        assert!(error.detail.contains("169.254.169.254"), "{error}");
    };
    let Ok(Target::Names(names)) = read("dns:///guard:7000", None) else { panic!("a name") };
    denied(transport_to(&names, "169.254.169.254:7000".parse().expect("an address"))).await;
    denied(transport_to(&names, "[::ffff:169.254.169.254]:7000".parse().expect("an address"))).await;
    // The system's resolver reads the number as that address.
    let Ok(Target::One(one)) = read("http://2852039166:7000", None) else { panic!("a host") };
    denied(one).await;
}

/// The system's error is simulated, because tests may run as root, which can write to every socket.
#[test]
fn a_socket_that_may_not_be_written_to_says_who_has_to_be_let_in() {
    let unix =
        UnixTransport { address: String::new(), path: "/run/guard.sock".into(), policy: DialPolicy::Any };
    let error = unix.failed(&io::ErrorKind::PermissionDenied.into());
    assert_eq!(error.cause, DialErrorKind::SocketPermission);
    assert!(error.detail.contains("let the gateway's user or group write to /run/guard.sock"), "{error}");
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_told_apart() {
    let Ok(Target::One(one)) = read("http://guard.invalid:7000", None) else { panic!("a host") };
    let error = one.connect().await.map(|_| ()).expect_err("unknown");
    assert_eq!(error.cause, DialErrorKind::NameUnresolved, "{error}");
}

/// A plugin of the API at `endpoint`, restricted to `egress`.
fn of_api(endpoint: &str, egress: serde_json::Value) -> Target {
    let mut plugin: config::Plugin =
        serde_json::from_value(json!({ "name": "guard", "endpoint": endpoint })).expect("a plugin");
    plugin.owner = crate::core::object::Owner::Api;
    let egress = serde_json::from_value(egress).expect("an egress");
    let reach = config::ApiPluginPolicy { egress, ..config::ApiPluginPolicy::default() };
    let shared = SharedResources { reach: Arc::new(reach), ..shared() };
    let targets = targets_of_plugin(&plugin, None, &shared).expect("endpoints are right");
    targets.into_iter().next().expect("one endpoint")
}

async fn cause(target: Target) -> Option<DialErrorKind> {
    match target {
        Target::One(transport) => transport.connect().await.err().map(|error| error.cause),
        Target::Names(_) => panic!("one address"),
    }
}

#[tokio::test]
async fn a_plugin_of_the_api_is_dialled_where_it_is_listed_and_nowhere_else() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let at = |host: &str| format!("http://{host}:{port}");
    let (none, loopback) = (json!({}), json!({ "cidrs": ["127.0.0.0/8"] }));
    let (elsewhere, named) = (json!({ "cidrs": ["10.0.0.0/8"] }), json!({ "names": ["localhost"] }));
    for (endpoint, egress) in [
        (at("127.0.0.1"), &none),
        (at("127.0.0.1"), &elsewhere),
        (at("127.0.0.1"), &named),
        // The system's resolver reads these as that address.
        (at("2130706433"), &elsewhere),
        (at("127.1"), &elsewhere),
        (at("[::ffff:127.0.0.1]"), &elsewhere),
        (at("localhost"), &elsewhere),
        (at("localhost"), &json!({ "names": ["*.localhost"] })),
    ] {
        let found = cause(of_api(&endpoint, egress.clone())).await;
        assert_eq!(found, Some(DialErrorKind::NotPermitted), "{endpoint} {egress}");
    }
    // Listing an address never allows one that is always denied.
    let metadata = of_api("http://2852039166:1", json!({ "cidrs": ["0.0.0.0/0"], "names": ["2852039166"] }));
    assert_eq!(cause(metadata).await, Some(DialErrorKind::EgressDenied));
    let accepted = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "it was dialled");

    for (endpoint, egress) in
        [(at("127.0.0.1"), &loopback), (at("2130706433"), &loopback), (at("localhost"), &named)]
    {
        // Nothing answers; only the connection matters.
        let Target::One(transport) = of_api(&endpoint, egress.clone()) else { panic!("one address") };
        tokio::select! {
            biased;
            accepted = listener.accept() => drop(accepted.expect("a connection")),
            error = transport.connect() => assert!(error.is_ok(), "{endpoint}: {:?}", error.err()),
        }
    }
}

#[tokio::test]
async fn an_address_that_a_listed_name_server_gives_is_judged_by_the_name_it_was_given_for() {
    let dial = async |egress: serde_json::Value| {
        let Target::Names(names) = of_api("dns:///guard.example.com:1", egress) else { panic!("a name") };
        let error = transport_to(&names, "127.0.0.1:1".parse().expect("an address")).connect().await.err();
        error.expect("nobody listens").cause
    };
    assert_eq!(dial(json!({ "cidrs": ["10.0.0.0/8"] })).await, DialErrorKind::NotPermitted);
    assert_eq!(dial(json!({ "cidrs": ["127.0.0.1"] })).await, DialErrorKind::NobodyListens);
    assert_eq!(dial(json!({ "names": ["*.example.com"] })).await, DialErrorKind::NobodyListens);
    // Not even resolved.
    let barred = of_api("dns:///guard.example.com:1", json!({ "names": ["example.com"] }));
    assert_eq!(cause(barred).await, Some(DialErrorKind::NotPermitted));
}

#[tokio::test]
async fn a_socket_is_dialled_where_it_really_is() {
    let root = tempfile::tempdir().expect("a folder");
    let (inside, outside) = (root.path().join("in"), root.path().join("out"));
    for dir in [&inside, &outside] {
        std::fs::create_dir(dir).expect("it can be made");
    }
    let _listeners = [&inside, &outside]
        .map(|dir| tokio::net::UnixListener::bind(dir.join("a.sock")).expect("it can be bound"));
    std::os::unix::fs::symlink(outside.join("a.sock"), inside.join("link.sock")).expect("a link");
    let dial = async |path: PathBuf| {
        let endpoint = format!("unix://{}", path.display());
        let Target::One(transport) = of_api(&endpoint, json!({ "socket_dirs": [inside] })) else {
            panic!("one address")
        };
        transport.connect().await.err().map(|error| error.cause)
    };
    // The connection was made, but nothing answers on it.
    let made = tokio::time::timeout(std::time::Duration::from_millis(200), dial(inside.join("a.sock"))).await;
    assert!(matches!(made, Err(_) | Ok(None)), "{made:?}");
    for path in [outside.join("a.sock"), inside.join("link.sock"), inside.join("../out/a.sock")] {
        assert_eq!(dial(path.clone()).await, Some(DialErrorKind::NotPermitted), "{}", path.display());
    }
    assert_eq!(dial(inside.join("nothing")).await, Some(DialErrorKind::NoSocket));
}
