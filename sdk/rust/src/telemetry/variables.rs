//! The OpenTelemetry environment variables that decide whether and how a signal is exported. The exporters
//! read the others themselves.

use super::TelemetryError;

/// A signal, by its name in variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Logs,
}

impl Signal {
    const fn as_str(self) -> &'static str {
        match self {
            Signal::Traces => "TRACES",
            Signal::Logs => "LOGS",
        }
    }
}

/// How a signal is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Grpc { tls: bool },
    Http,
}

/// Value of a variable; an empty one counts as absent.
pub(super) fn read(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// The transport that the environment configures for `signal`; `None` if it isn't exported.
pub(super) fn transport(
    signal: Signal,
    read: impl Fn(&str) -> Option<String>,
) -> Result<Option<Transport>, TelemetryError> {
    let is = |variable: &str, value: &str| read(variable).is_some_and(|is| is.eq_ignore_ascii_case(value));
    let name = signal.as_str();
    if is("OTEL_SDK_DISABLED", "true") || is(&format!("OTEL_{name}_EXPORTER"), "none") {
        return Ok(None);
    }
    // The signal's own variable overrides the general one.
    let setting = |key: &str| {
        let both = [format!("OTEL_EXPORTER_OTLP_{name}_{key}"), format!("OTEL_EXPORTER_OTLP_{key}")];
        both.into_iter().find_map(|variable| Some((read(&variable)?, variable)))
    };
    let Some((endpoint, _)) = setting("ENDPOINT") else { return Ok(None) };
    match setting("PROTOCOL") {
        None => Ok(Some(Transport::Http)),
        Some((protocol, _)) if protocol == "http/protobuf" => Ok(Some(Transport::Http)),
        Some((protocol, _)) if protocol == "grpc" => {
            let is_insecure =
                setting("INSECURE").is_some_and(|(value, _)| value.eq_ignore_ascii_case("true"));
            let has_scheme = endpoint.contains("://");
            let tls = endpoint.starts_with("https://") || (!has_scheme && !is_insecure);
            Ok(Some(Transport::Grpc { tls }))
        }
        Some((protocol, variable)) => {
            let reason = format!("`{protocol}` is not `grpc` or `http/protobuf`");
            Err(TelemetryError::Variable { variable, reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Transport>, String> {
        let read = |name: &str| {
            let set = variables.iter().find(|(variable, _)| *variable == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        transport(Signal::Traces, read).map_err(|error| error.to_string())
    }

    #[test]
    fn a_signal_is_exported_if_it_has_an_endpoint() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:4318");
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://127.0.0.1:4318")]), Ok(None));
        assert_eq!(of(&[endpoint]), Ok(Some(Transport::Http)));
        assert_eq!(of(&[own]), Ok(Some(Transport::Http)));
        assert_eq!(of(&[endpoint, ("OTEL_SDK_DISABLED", "True")]), Ok(None));
        assert_eq!(of(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        assert_eq!(of(&[endpoint, ("OTEL_LOGS_EXPORTER", "none")]), Ok(Some(Transport::Http)));
    }

    #[test]
    fn the_protocol_of_the_signal_replaces_the_general_one() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        let (all, own) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
        let grpc = Ok(Some(Transport::Grpc { tls: false }));
        assert_eq!(of(&[endpoint, (all, "grpc")]), grpc);
        assert_eq!(of(&[endpoint, (all, "http/protobuf"), (own, "grpc")]), grpc);
        assert_eq!(of(&[endpoint, (all, "grpc"), (own, "http/protobuf")]), Ok(Some(Transport::Http)));
        let wrong = of(&[endpoint, (own, "http/json")]).expect_err("it is not supported");
        assert!(wrong.contains(own) && wrong.contains("http/json"), "{wrong}");
    }

    #[test]
    fn grpc_uses_tls_by_the_scheme_or_unless_told_not_to() {
        for (endpoint, insecure, tls) in [
            ("https://collector:4317", "true", true),
            ("http://collector:4317", "false", false),
            ("collector:4317", "false", true),
            ("collector:4317", "true", false),
        ] {
            let variables = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_INSECURE", insecure),
            ];
            assert_eq!(of(&variables), Ok(Some(Transport::Grpc { tls })), "{endpoint} {insecure}");
        }
    }
}
