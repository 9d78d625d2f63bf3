//! The configuration of the measured Envoy: the job of a gateway with N echo plugins. It checks the same token,
//! calls each plugin with the whole request, and answers without an upstream.
//!
//! Where there is a choice, it is the one that costs Envoy less; bench/README.md lists them.

use serde_json::{Value, json};
use tonic::metadata::BinaryMetadataValue;

use crate::gateway_config::{AUDIENCE, ISSUER, SIGNING_SECRET};

/// The listener, by the name that Envoy's admin port gives it.
pub(crate) const LISTENER: &str = "calls";
/// A gRPC message: `BeforeToolCallResponse` with `decision: DECISION_CONTINUE`.
const ANSWER: &[u8] = &[0, 0, 0, 0, 2, 0x08, 0x01];
/// No call comes near it. The default of `ext_proc`, 200 ms, fails calls on a busy machine.
const PLUGIN_TIMEOUT: &str = "5s";

/// An Envoy that calls the `ext_proc` servers at these ports one after another.
pub(crate) fn bootstrap(plugins: &[u16]) -> Value {
    let clusters = plugins.iter().enumerate().map(|(number, port)| plugin_cluster(number, *port));
    json!({
        "admin": { "address": loopback(0) },
        "static_resources": {
            "listeners": [{
                "name": LISTENER,
                "address": loopback(0),
                // The gateway distributes connections evenly, too.
                "connection_balance_config": { "exact_balance": {} },
                "filter_chains": [{ "filters": [connection_manager(plugins.len())] }],
            }],
            "clusters": clusters.collect::<Vec<_>>(),
        },
    })
}

fn loopback(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}

/// An extension by its name and the name of its configuration's type.
fn extension(name: &str, config_type: &str, mut config: Value) -> Value {
    config["@type"] = format!("type.googleapis.com/envoy.extensions.{config_type}").into();
    json!({ "name": name, "typed_config": config })
}

fn connection_manager(plugins: usize) -> Value {
    let mut filters = vec![token_filter()];
    filters.extend((0..plugins).map(plugin_filter));
    filters.push(extension("router", "filters.http.router.v3.Router", json!({})));
    let routes = json!({
        "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [answer_route()] }],
    });
    extension(
        "http",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": LISTENER,
            "codec_type": "HTTP2",
            "route_config": routes,
            "http_filters": filters,
        }),
    )
}

/// Answers as a gRPC server does, but for `grpc-status`, which is a header because Envoy's own answers have no
/// trailers.
fn answer_route() -> Value {
    let header = |name: &str, value: &str| {
        json!({
            "header": { "key": name, "value": value }, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
        })
    };
    json!({
        "match": { "prefix": "/" },
        "direct_response": { "status": 200, "body": { "inline_bytes": base64url(ANSWER) } },
        "response_headers_to_add": [header("content-type", "application/grpc"), header("grpc-status", "0")],
    })
}

fn token_filter() -> Value {
    let key = json!({ "kty": "oct", "alg": "HS256", "k": base64url(SIGNING_SECRET.as_bytes()) });
    let keys = json!({ "keys": [key] }).to_string();
    let provider = json!({
        "issuer": ISSUER,
        "audiences": [AUDIENCE],
        "local_jwks": { "inline_string": keys },
        "jwt_cache_config": {},
    });
    let rule = json!({ "match": { "prefix": "/" }, "requires": { "provider_name": "bench" } });
    extension(
        "jwt_authn",
        "filters.http.jwt_authn.v3.JwtAuthentication",
        json!({ "providers": { "bench": provider }, "rules": [rule] }),
    )
}

fn cluster_name(number: usize) -> String {
    format!("plugin-{number}")
}

fn plugin_filter(number: usize) -> Value {
    extension(
        &format!("ext_proc-{number}"),
        "filters.http.ext_proc.v3.ExternalProcessor",
        json!({
            "grpc_service": { "envoy_grpc": { "cluster_name": cluster_name(number) } },
            "message_timeout": PLUGIN_TIMEOUT,
            // A plugin of the gateway sees a whole call, too, and no answer.
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "BUFFERED",
                "request_trailer_mode": "SKIP",
                "response_header_mode": "SKIP",
                "response_body_mode": "NONE",
                "response_trailer_mode": "SKIP",
            },
        }),
    )
}

fn plugin_cluster(number: usize, port: u16) -> Value {
    let name = cluster_name(number);
    let endpoint = json!({ "endpoint": { "address": loopback(port) } });
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] },
        "typed_extension_protocol_options": {
            options: {
                "@type": format!("type.googleapis.com/{options}"),
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
    })
}

/// Without padding. Binary metadata of gRPC is base64 of the other alphabet.
fn base64url(bytes: &[u8]) -> String {
    let encoded = BinaryMetadataValue::from_bytes(bytes);
    String::from_utf8_lossy(encoded.as_encoded_bytes()).replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_filter_and_a_cluster_for_each_plugin() {
        let config = bootstrap(&[4001, 4002, 4003]);
        let resources = &config["static_resources"];
        let manager = &resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
        let filters = manager["http_filters"].as_array().expect("there are filters").iter();
        let names: Vec<_> = filters.map(|filter| &filter["name"]).collect();
        assert_eq!(names, ["jwt_authn", "ext_proc-0", "ext_proc-1", "ext_proc-2", "router"]);
        let clusters = resources["clusters"].as_array().expect("there are clusters");
        assert_eq!(clusters.len(), 3);
        for (number, filter) in manager["http_filters"].as_array().unwrap()[1..=3].iter().enumerate() {
            let cluster = &filter["typed_config"]["grpc_service"]["envoy_grpc"]["cluster_name"];
            assert_eq!(*cluster, clusters[number]["name"]);
            let endpoint = &clusters[number]["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
            let address = &endpoint["endpoint"]["address"]["socket_address"];
            assert_eq!(address["port_value"], 4001 + number);
        }
    }

    #[test]
    fn base64_has_the_alphabet_of_jwks_and_no_padding() {
        assert_eq!(base64url(&[0xfb, 0xff, 0xfe, 0x00]), "-__-AA");
    }
}
