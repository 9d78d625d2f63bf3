//! Configurations that are refused.

use super::*;

async fn refusal(more: Value) -> String {
    let mut config = json!({ "url": "https://hooks.example.com/", "secret": SECRET });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let status =
        TestPlugin::<Webhook>::start(&config).await.err().unwrap_or_else(|| panic!("{more} is refused"));
    assert_eq!(status.code(), GrpcCode::InvalidArgument, "{more}: {status}");
    assert!(!status.message().contains("CANARY") && !status.message().contains(SECRET), "{status}");
    status.message().to_owned()
}

#[tokio::test]
async fn a_url_that_cannot_be_called_is_refused() {
    let http = |cidrs: Value| json!({ "allow_http": true, "egress": { "cidrs": cidrs } });
    let with_url = |url: &str, mut more: Value| {
        more["url"] = json!(url);
        more
    };
    for (config, field, part) in [
        (json!({ "url": "CANARY" }), "url", "an absolute URL"),
        (json!({ "url": "ftp://CANARY/" }), "url", "begins with `https://`"),
        (json!({ "url": "http://CANARY/" }), "url", "`allow_http: true`"),
        (with_url("http://a/", http(json!([]))), "egress.cidrs", "to which `http://` may go"),
        (with_url("http://1.1.1.1/", http(json!(["10.0.0.0/8"]))), "url", "which `http://` requires"),
        (json!({ "url": "https://CANARY:CANARY@a/" }), "url", "use `headers`"),
        (json!({ "url": "https://a/#CANARY" }), "url", "no fragment"),
        (json!({ "url": "https://127.0.0.1/" }), "url", "`egress.cidrs` doesn't list it"),
        (json!({ "url": "https://[::ffff:10.0.0.1]/" }), "url", "`egress.cidrs` doesn't list it"),
        // Other spellings of 127.0.0.1.
        (json!({ "url": "https://2130706433/" }), "url", "127.0.0.1 is not a public address"),
        (json!({ "url": "https://0x7f.1/" }), "url", "127.0.0.1 is not a public address"),
        (
            json!({ "url": "https://169.254.169.254/", "egress": { "cidrs": ["0.0.0.0/0"] } }),
            "url",
            "never dialled",
        ),
        (json!({ "egress": { "hosts": ["*.example.org"] } }), "url", "a host that `egress.hosts` lists"),
        (json!({ "egress": { "hosts": ["a["] } }), "egress.hosts[0]", "isn't a valid glob"),
        (
            json!({ "egress": { "cidrs": ["10.0.0.0/8", "10.0.0.1/8"] } }),
            "egress.cidrs[1]",
            "a network without bits",
        ),
    ] {
        let message = refusal(config).await;
        assert!(
            message.starts_with(&format!("config field `{field}`: ")) && message.contains(part),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_setting_out_of_its_bounds_is_refused() {
    let many: serde_json::Map<_, _> = (0..17).map(|number| (format!("x-{number}"), json!("a"))).collect();
    for (config, field, part) in [
        (json!({ "secret": "CANARY" }), "secret", "`whsec_` and 24 to 64 random bytes in base64"),
        (json!({ "previous_secret": "whsec_CANARY" }), "previous_secret", "openssl rand -base64 32"),
        (json!({ "timeout": "0ms" }), "timeout", "1ms to 60s"),
        (json!({ "timeout": "61s" }), "timeout", "1ms to 60s"),
        (json!({ "max_response_bytes": 1023 }), "max_response_bytes", "1024 to 1048576"),
        (json!({ "max_response_bytes": 1_048_577 }), "max_response_bytes", "1024 to 1048576"),
        (json!({ "points": [] }), "points", "at least one point"),
        (json!({ "headers": many }), "headers", "at most 16"),
        (json!({ "headers": { "a b": "CANARY" } }), "headers", "letters, digits and `-`"),
        (json!({ "headers": { "Host": "CANARY" } }), "headers.Host", "another header"),
        (json!({ "headers": { "webhook-id": "CANARY" } }), "headers.webhook-id", "another header"),
        (json!({ "headers": { "Content-Length": "1" } }), "headers.Content-Length", "another header"),
        (json!({ "headers": { "x-a": "CANARY\n" } }), "headers.x-a", "visible ASCII"),
        (json!({ "headers": { "X-A": "1", "x-a": "2" } }), "headers.x-a", "a header once"),
        (json!({ "ca_file": "/nonexistent/ca.pem" }), "ca_file", "a PEM file of certificates"),
        (json!({ "ca_file": "/dev/null" }), "ca_file", "it has none"),
        (json!({ "ca_file": "/dev/zero" }), "ca_file", "larger than 1 MiB"),
    ] {
        let message = refusal(config).await;
        assert!(
            message.starts_with(&format!("config field `{field}`: ")) && message.contains(part),
            "{message}"
        );
    }
    let message = refusal(json!({ "answer": "CANARY" })).await;
    assert!(message.contains("`answer`") && message.contains("`decide` or `ignore`"), "{message}");
    assert!(refusal(json!({ "urls": [] })).await.contains("unknown field `urls`"));
}

#[tokio::test]
async fn a_certificate_file_has_to_have_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "CANARY").unwrap();
    assert!(refusal(json!({ "ca_file": file })).await.contains("`ca_file`"));
    let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    let config = json!({ "url": "https://hooks.example.com/", "secret": SECRET, "ca_file": file });
    TestPlugin::<Webhook>::start(&config).await.unwrap();
}

#[tokio::test]
async fn a_host_that_is_listed_is_accepted_in_any_case() {
    for url in ["https://hooks.example.com/", "https://HOOKS.example.com./"] {
        let config = json!({ "url": url, "secret": SECRET, "egress": { "hosts": ["a", "*.Example.com"] } });
        TestPlugin::<Webhook>::start(&config).await.unwrap();
    }
}
